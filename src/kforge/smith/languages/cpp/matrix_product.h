// left (BATCHES x ROWS x INNER) times right (BATCHES x INNER x COLUMNS).
template <int64_t BATCHES, int64_t ROWS, int64_t INNER, int64_t COLUMNS, class Tail>
static void matrix_product(const Matrix& left, const Matrix& right, const Tail& tail) {
    constexpr int64_t DOWN = pieces(ROWS, PANEL), ACROSS = pieces(COLUMNS, PANEL), STEPS = pieces(INNER, STEP);
    // A block's sums and panels stay in a core's own cache; smaller ones where threads would have nothing to do.
    constexpr int64_t WIDE = BATCHES * pieces(DOWN, 8) * pieces(ACROSS, 16) >= 8 ? 16 : 8;
    constexpr int64_t HIGH = BATCHES * pieces(DOWN, 8) * pieces(ACROSS, WIDE) >= 8 ? 8 : 4;
    uint16_t* packed_rows = scratch<uint16_t>(BATCHES * DOWN * STEPS * PACKED, 0);
    uint16_t* packed_columns = scratch<uint16_t>(BATCHES * ACROSS * STEPS * PACKED, 1);
    #pragma omp parallel
    {
        const Tiles tiles;
        #pragma omp for nowait
        for (int64_t panel = 0; panel < BATCHES * DOWN; ++panel) {
            pack_rows(left, panel / DOWN, panel % DOWN, ROWS, INNER, packed_rows + panel * STEPS * PACKED);
        }
        #pragma omp for
        for (int64_t panel = 0; panel < BATCHES * ACROSS; ++panel) {
            pack_columns(right, panel / ACROSS, panel % ACROSS, INNER, COLUMNS, packed_columns + panel * STEPS * PACKED);
        }
        float* sums = scratch<float>(HIGH * WIDE * PANEL * PANEL, 2);
        #pragma omp for collapse(3) schedule(dynamic)
        for (int64_t batch = 0; batch < BATCHES; ++batch) {
            for (int64_t top = 0; top < DOWN; top += HIGH) {
                for (int64_t side = 0; side < ACROSS; side += WIDE) {
                    const int64_t high = std::min(HIGH, DOWN - top), wide = std::min(WIDE, ACROSS - side);
                    const uint16_t* columns = packed_columns + (batch * ACROSS + side) * STEPS * PACKED;
                    const auto panel = [&](int64_t j) { return Packed{columns + j * STEPS * PACKED}; };
                    multiply_block<STEPS, WIDE>(
                        packed_rows + (batch * DOWN + top) * STEPS * PACKED, panel, high, wide, sums);
                    hand_over<WIDE, ROWS, COLUMNS>(batch, top, side, high, wide, sums, tail);
                }
            }
        }
    }
}
