// left (BATCHES x ROWS x INNER) times right (BATCHES x INNER x COLUMNS). Threads share the batches, or the rows and
// columns of each batch. Each thread packs all panels that it reads: reading panels that another core has just written
// would be slower.
template <int64_t BATCHES, int64_t ROWS, int64_t INNER, int64_t COLUMNS, class Tail>
static void matrix_product(const Matrix& left, const Matrix& right, const Tail& tail) {
    constexpr int64_t DOWN = pieces(ROWS, PANEL), ACROSS = pieces(COLUMNS, PANEL), STEPS = pieces(INNER, STEP);
    constexpr int64_t HIGH = 8, WIDE = 8;  // most panels of a block: its sums stay in the core's L2 cache
    #pragma omp parallel
    {
        const Tiles tiles;
        const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
        const bool by_batches = BATCHES >= threads;
        // the number of parts of the rows for which all threads together pack the fewest panels
        int64_t high_parts = 1;
        for (int64_t parts = 2; parts <= threads && !by_batches; ++parts) {
            const auto packed = [&](int64_t p) { return DOWN * threads / p + ACROSS * p; };
            if (threads % parts == 0 && packed(parts) < packed(high_parts)) high_parts = parts;
        }
        const int64_t wide_parts = by_batches ? 1 : threads / high_parts;
        const Share batches = by_batches ? Share(BATCHES, thread, threads) : Share(BATCHES, 0, 1);
        const Share down(DOWN, by_batches ? 0 : thread / wide_parts, high_parts);
        const Share across(ACROSS, by_batches ? 0 : thread % wide_parts, wide_parts);
        uint16_t* rows = scratch<uint16_t>(HIGH * STEPS * PACKED, 0);
        uint16_t* columns = scratch<uint16_t>((across.end - across.begin) * STEPS * PACKED, 1);
        float* sums = scratch<float>(HIGH * WIDE * PANEL * PANEL, 2);
        for (int64_t batch = batches.begin; batch < batches.end; ++batch) {
            for (int64_t panel = across.begin; panel < across.end; ++panel) {
                pack_columns(right, batch, panel, INNER, COLUMNS, columns + (panel - across.begin) * STEPS * PACKED);
            }
            for (int64_t top = down.begin; top < down.end; top += HIGH) {
                const int64_t high = std::min(HIGH, down.end - top);
                for (int64_t i = 0; i < high; ++i) {
                    pack_rows(left, batch, top + i, ROWS, INNER, rows + i * STEPS * PACKED);
                }
                for (int64_t side = across.begin; side < across.end; side += WIDE) {
                    const int64_t wide = std::min(WIDE, across.end - side);
                    const uint16_t* first = columns + (side - across.begin) * STEPS * PACKED;
                    const auto panel = [&](int64_t i, int64_t j, int64_t step) {
                        const uint16_t* next = first + (std::min(j + 1, wide - 1) * STEPS + step) * PACKED;
                        return Packed{first + j * STEPS * PACKED, next + i * LONG_STEPS * PACKED / HIGH};
                    };
                    multiply_block<STEPS, WIDE>(rows, panel, high, wide, sums);
                    hand_over<WIDE, ROWS, COLUMNS>(batch, top, side, high, wide, sums, tail);
                }
            }
        }
    }
}
