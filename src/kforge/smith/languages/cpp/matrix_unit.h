// Products of float32 matrices on a matrix unit that multiplies bfloat16 (AMX), as exact as single precision. Each
// number is split into three bfloat16 parts whose sum it is: high + middle + low. Of the nine products of parts, the
// six largest are added up; the others are below 2^-24. A sum over the inner axis is computed in pieces of 256
// elements, and vector instructions add up the pieces: this keeps the rounding error small. Infinities become NaN.
constexpr int64_t PANEL = 32;  // rows or columns that are multiplied together: two tiles of 16
constexpr int64_t STEP = 32;   // elements of the inner axis in a tile
constexpr int64_t PACKED = 3 * PANEL * STEP;  // bfloat16 numbers of one step of a panel, three parts each
constexpr int64_t LONG_STEPS = 8;  // steps of a piece of a sum

// Returns memory that a thread keeps from call to call, because new pages for every call would take as long as the
// packing. It is in large pages, because tiles are far apart.
template <class Number>
static Number* scratch(int64_t count, int slot) {
    struct Block {
        void* memory = nullptr;
        size_t bytes = 0;
        ~Block() { std::free(memory); }
    };
    static thread_local Block blocks[4];
    Block& block = blocks[slot];
    const size_t page = 2 << 20, bytes = (count * sizeof(Number) + page - 1) / page * page;
    if (bytes > block.bytes) {
        std::free(block.memory);
        block.memory = std::aligned_alloc(page, bytes);
        block.bytes = bytes;
        madvise(block.memory, bytes, MADV_HUGEPAGE);
    }
    return static_cast<Number*>(block.memory);
}

// Configures the tile registers of a thread, and releases them at the end of its scope.
struct Tiles {
    Tiles() {
        static const bool allowed = syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tiles */) == 0;
        if (!allowed) {
            std::fputs("this program was made for a processor and a kernel with AMX\n", stderr);
            std::abort();
        }
        struct {
            uint8_t palette = 1, start = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        } shape;
        _tile_loadconfig(&shape);
    }
    ~Tiles() { _tile_release(); }
};

static inline void transpose(__m512 rows[16]) {
    __m512 t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        for (int half = 0; half < 2; ++half) {
            const __m512d low = _mm512_castps_pd(t[i + half]), high = _mm512_castps_pd(t[i + half + 2]);
            rows[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            rows[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    }
    for (int i = 0; i < 4; ++i) {
        for (int pair = 0; pair < 2; ++pair) {
            t[8 * pair + i] = _mm512_shuffle_f32x4(rows[8 * pair + i], rows[8 * pair + 4 + i], 0x88);
            t[8 * pair + 4 + i] = _mm512_shuffle_f32x4(rows[8 * pair + i], rows[8 * pair + 4 + i], 0xdd);
        }
    }
    for (int i = 0; i < 8; ++i) {
        rows[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
        rows[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
    }
}

static inline __mmask16 first_of(int64_t count) { return count >= 16 ? 0xffff : count <= 0 ? 0 : (1u << count) - 1; }

// Loads the 16 x 16 elements that begin at (down, across). Elements beyond the matrix are zero.
static inline void load_square(
    const Matrix& m, int64_t batch, int64_t down, int64_t across, int64_t height, int64_t width, __m512 rows[16]) {
    const float* from = m.data + batch * m.batch + down * m.down + across * m.across;
    const bool neighbours = m.across == 1;
    const int64_t step = neighbours ? m.down : m.across;
    const int64_t count = neighbours ? height - down : width - across, length = neighbours ? width - across : height - down;
    for (int i = 0; i < 16; ++i) {
        rows[i] = i < count ? _mm512_maskz_loadu_ps(first_of(length), from + i * step) : _mm512_setzero_ps();
    }
    if (!neighbours) transpose(rows);
}

// Splits numbers into three bfloat16 parts: each part is the remainder after the parts before it, rounded to bfloat16.
// A bfloat16 number is the upper half of a float32 number.
static inline void split(__m512 x, __m512i parts[3]) {
    const __m512i upper = _mm512_set1_epi32(0xffff0000), half = _mm512_set1_epi32(0x8000);
    for (int part = 0; part < 3; ++part) {
        parts[part] = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), half), upper);
        x = _mm512_sub_ps(x, _mm512_castsi512_ps(parts[part]));
    }
}

// Packs a panel of rows. A row of a tile has 32 neighbouring elements of the inner axis.
static void pack_rows(const Matrix& m, int64_t batch, int64_t panel, int64_t height, int64_t width, uint16_t* to) {
    alignas(64) uint16_t uppers[32];
    for (int i = 0; i < 32; ++i) uppers[i] = 2 * i + 1;
    const __m512i both_uppers = _mm512_load_si512(uppers);
    for (int64_t inner = 0; inner < width; inner += STEP, to += PACKED) {
        for (int64_t row = 0; row < PANEL; row += 16) {
            __m512 near[16], far[16];
            load_square(m, batch, panel * PANEL + row, inner, height, width, near);
            load_square(m, batch, panel * PANEL + row, inner + 16, height, width, far);
            for (int i = 0; i < 16; ++i) {
                __m512i first[3], second[3];
                split(near[i], first);
                split(far[i], second);
                for (int part = 0; part < 3; ++part) {
                    const __m512i line = _mm512_permutex2var_epi16(first[part], both_uppers, second[part]);
                    _mm512_store_si512(to + (part * PANEL + row + i) * STEP, line);
                }
            }
        }
    }
}

// Packs a panel of columns. A row of a tile has, for each of 16 columns, two neighbouring elements of the inner axis.
static void pack_columns(const Matrix& m, int64_t batch, int64_t panel, int64_t height, int64_t width, uint16_t* to) {
    for (int64_t inner = 0; inner < height; inner += STEP, to += PACKED) {
        for (int64_t column = 0; column < PANEL; column += 16) {
            for (int64_t half = 0; half < STEP; half += 16) {
                __m512 rows[16];
                load_square(m, batch, inner + half, panel * PANEL + column, height, width, rows);
                for (int i = 0; i < 16; i += 2) {
                    __m512i even[3], odd[3];
                    split(rows[i], even);
                    split(rows[i + 1], odd);
                    for (int part = 0; part < 3; ++part) {
                        const __m512i line = _mm512_or_si512(_mm512_srli_epi32(even[part], 16), odd[part]);
                        _mm512_store_si512(to + (part * PANEL + column + (half + i) / 2) * STEP, line);
                    }
                }
            }
        }
    }
}

// A packed panel of columns.
struct Packed {
    static constexpr int64_t ROW_BYTES = 64;
    const uint16_t* data;
    const uint16_t* ahead;  // the panel that is multiplied next, for prefetching
    const void* tile(int64_t step, int64_t part, int64_t half) const {
        return data + step * PACKED + (part * PANEL + half * 16) * STEP;
    }
    void fetch(int64_t piece) const {
        for (int64_t line = 0; line < 4; ++line) _mm_prefetch(ahead + (piece * 4 + line) * STEP, _MM_HINT_T1);
    }
};

// Multiplies a panel of rows by a panel of columns over `steps` steps from `begin` on, and adds the 32 x 32 results to
// `sums`; if `begin` is 0, it stores them. `ahead` are the rows that the next call reads, for prefetching.
template <class Columns>
static inline void multiply(
    const uint16_t* rows, const Columns& columns, int64_t begin, int64_t steps, float* sums, const uint16_t* ahead) {
    constexpr int64_t TILE = 16 * STEP, PART = PANEL * STEP;
    rows += begin * PACKED;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t step = begin; step < begin + steps; ++step, rows += PACKED) {
        const uint16_t* next = step + 1 < begin + steps ? rows + PACKED : ahead;
        const auto fetch = [&](int64_t sixth) {
            for (int64_t line = 0; line < 16; ++line) _mm_prefetch(next + (sixth * 16 + line) * STEP, _MM_HINT_T0);
            columns.fetch((step - begin) * 6 + sixth);
        };
        const auto take_rows = [&](int64_t part) {
            _tile_loadd(4, rows + part * PART, 64);
            _tile_loadd(5, rows + part * PART + TILE, 64);
        };
        const auto take_columns = [&](int64_t part) {
            _tile_loadd(6, columns.tile(step, part, 0), Columns::ROW_BYTES);
            _tile_loadd(7, columns.tile(step, part, 1), Columns::ROW_BYTES);
        };
        const auto add_up = [&](int64_t sixth) {
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            fetch(sixth);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        };
        take_rows(2), take_columns(0), add_up(0);  // low * high
        take_rows(1), add_up(1);                   // middle * high
        take_columns(1), add_up(2);                // middle * middle
        take_rows(0), add_up(3);                   // high * middle
        take_columns(2), add_up(4);                // high * low
        take_columns(0), add_up(5);                // high * high
    }
    alignas(64) float here[PANEL * PANEL];
    float* to = begin == 0 ? sums : here;
    _tile_stored(0, to, PANEL * 4);
    _tile_stored(1, to + 16, PANEL * 4);
    _tile_stored(2, to + 16 * PANEL, PANEL * 4);
    _tile_stored(3, to + 16 * PANEL + 16, PANEL * 4);
    if (begin == 0) return;
    for (int64_t i = 0; i < PANEL * PANEL; ++i) sums[i] += here[i];
}

// Multiplies `high` panels of rows by `wide` panels of columns, which columns(row panel, column panel, step) returns.
// The sums are stored panel by panel.
template <int64_t STEPS, int64_t WIDE, class Columns>
static void multiply_block(const uint16_t* rows, const Columns& columns, int64_t high, int64_t wide, float* sums) {
    for (int64_t step = 0; step < STEPS; step += LONG_STEPS) {
        for (int64_t j = 0; j < wide; ++j) {
            for (int64_t i = 0; i < high; ++i) {
                const uint16_t* next = rows + ((i + 1 < high ? i + 1 : 0) * STEPS + step) * PACKED;
                multiply(rows + i * STEPS * PACKED, columns(i, j, step), step, std::min(LONG_STEPS, STEPS - step),
                         sums + (i * WIDE + j) * PANEL * PANEL, next);
            }
        }
    }
}

// Passes each finished piece of a row to the tail: tail(batch, row, first column, count, values).
template <int64_t WIDE, int64_t ROWS, int64_t COLUMNS, class Tail>
static void hand_over(int64_t batch, int64_t top, int64_t side, int64_t high, int64_t wide, const float* sums, const Tail& tail) {
    const int64_t last = std::min(high * PANEL, ROWS - top * PANEL);
    for (int64_t row = 0; row < last; ++row) {
        for (int64_t j = 0; j < wide; ++j) {
            const int64_t column = (side + j) * PANEL;
            const float* values = sums + ((row / PANEL * WIDE + j) * PANEL + row % PANEL) * PANEL;
            tail(batch, top * PANEL + row, column, std::min(PANEL, COLUMNS - column), values);
        }
    }
}
