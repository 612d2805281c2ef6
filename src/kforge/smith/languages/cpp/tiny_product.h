// left (ROWS x INNER) times right (INNER x COLUMNS) for many tiny matrices: a library call for each would take longer
// than the product itself. TALL rows of the result are in registers at a time, and threads share the batches.
template <int64_t LANES, int64_t VECTORS, int64_t TALL>
struct TinyRows {
    typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
    static constexpr int64_t WIDE = LANES * VECTORS;

    // Each row of `right` has WIDE numbers, and begins `step` numbers after the row before.
    static void multiply(
        const float* left, int64_t down, int64_t across, const float* right, int64_t step, int64_t inner, float* product) {
        Vector sums[TALL][VECTORS] = {};
        for (int64_t i = 0; i < inner; ++i) {
            const Vector* theirs = reinterpret_cast<const Vector*>(right + i * step);
            for (int64_t row = 0; row < TALL; ++row) {
                const float ours = left[row * down + i * across];
                for (int64_t v = 0; v < VECTORS; ++v) sums[row][v] += ours * theirs[v];
            }
        }
        std::memcpy(product, sums, sizeof sums);
    }
};

template <int64_t BATCHES, int64_t ROWS, int64_t INNER, int64_t COLUMNS, class Tail>
static void tiny_product(const Matrix& left, const Matrix& right, const Tail& tail) {
    constexpr int64_t LANES = COLUMNS <= 4 ? 4 : COLUMNS <= 8 ? 8 : 16, VECTORS = pieces(COLUMNS, LANES);
    constexpr int64_t WIDE = LANES * VECTORS, TALL = std::min<int64_t>(ROWS, 8), LAST = ROWS % TALL;
    #pragma omp parallel
    {
        const Share share(BATCHES, omp_get_thread_num(), omp_get_num_threads());
        alignas(64) float product[TALL * WIDE], padded[INNER * WIDE] = {};
        const bool whole = right.across == 1 && COLUMNS == WIDE;
        for (int64_t batch = share.begin; batch < share.end; ++batch) {
            const float* ours = left.data + batch * left.batch;
            const float* theirs = right.data + batch * right.batch;
            for (int64_t i = 0; i < (whole ? 0 : INNER); ++i) {
                for (int64_t j = 0; j < COLUMNS; ++j) padded[i * WIDE + j] = theirs[i * right.down + j * right.across];
            }
            const float* rows = whole ? theirs : padded;
            const int64_t step = whole ? right.down : WIDE;
            const auto hand_over = [&](int64_t first, int64_t count) {
                for (int64_t row = 0; row < count; ++row) tail(batch, first + row, 0, COLUMNS, product + row * WIDE);
            };
            for (int64_t row = 0; row + TALL <= ROWS; row += TALL) {
                TinyRows<LANES, VECTORS, TALL>::multiply(
                    ours + row * left.down, left.down, left.across, rows, step, INNER, product);
                hand_over(row, TALL);
            }
            if constexpr (LAST != 0) {
                TinyRows<LANES, VECTORS, LAST>::multiply(
                    ours + (ROWS - LAST) * left.down, left.down, left.across, rows, step, INNER, product);
                hand_over(ROWS - LAST, LAST);
            }
        }
    }
}
