// A convolution as a matrix product: the weights (OUT rows; one column per tap and channel) times a matrix with one
// column per output, which holds the inputs in that output's window. Each input is split into three bfloat16 parts
// once; the parts of two channels are stored in one 32-bit word. With stride 1 and a multiple of 32 channels, tiles
// are read directly from these words, for each tap at another offset. Otherwise they are copied into packed tiles.
template <int64_t IMAGES, int64_t CHANNELS, int64_t OUT, int64_t DEPTH, int64_t HEIGHT, int64_t WIDTH, class WINDOW>
struct Convolution {
    static constexpr int64_t IN[3] = {DEPTH, HEIGHT, WIDTH};
    static constexpr int64_t padded(int axis) { return IN[axis] + 2 * WINDOW::padding[axis]; }
    static constexpr int64_t outputs(int axis) {
        return (padded(axis) - WINDOW::dilation[axis] * (WINDOW::size[axis] - 1) - 1) / WINDOW::stride[axis] + 1;
    }
    static constexpr int64_t PLACES = outputs(0) * outputs(1) * outputs(2);
    static constexpr int64_t TAPS = WINDOW::size[0] * WINDOW::size[1] * WINDOW::size[2];
    static constexpr int64_t PAIRS = pieces(CHANNELS, 2), STEPS = pieces(TAPS * PAIRS, 16);
    // Words of a plane: an odd number of cache lines, so that planes do not compete for the same cache sets. Vectors
    // may read beyond the plane's last element.
    static constexpr int64_t PLANE = (padded(0) * padded(1) * padded(2) + 32) / 32 * 32 + 16;
    static constexpr int64_t PART = PAIRS * PLANE;
    static constexpr bool DIRECT = CHANNELS % 32 == 0 && WINDOW::stride[0] * WINDOW::stride[1] * WINDOW::stride[2] == 1;
    // Number of columns if tiles are read directly. They include positions in the padding between two lines of outputs,
    // whose results are dropped.
    static constexpr int64_t WALK = ((outputs(0) - 1) * padded(1) + outputs(1) - 1) * padded(2) + outputs(2);

    static constexpr int64_t shift_of(int64_t tap) {
        const int64_t z = tap / (WINDOW::size[1] * WINDOW::size[2]) * WINDOW::dilation[0];
        const int64_t y = tap / WINDOW::size[2] % WINDOW::size[1] * WINDOW::dilation[1];
        return (z * padded(1) + y) * padded(2) + tap % WINDOW::size[2] * WINDOW::dilation[2];
    }

    // A panel of columns that is read directly from the split inputs.
    struct Inputs {
        static constexpr int64_t ROW_BYTES = PLANE * 4;
        const uint32_t* data;
        const void* tile(int64_t step, int64_t part, int64_t half) const {
            const int64_t tap = step / (PAIRS / 16), pair = step % (PAIRS / 16) * 16;
            return data + part * PART + pair * PLANE + shift_of(tap) + half * 16;
        }
        void fetch(int64_t) const {}
    };

    // Splits two channels of the input, pads them with zeros and stores them as pairs, in the layout of a tile.
    static void split_planes(const float* x, int64_t pair, uint32_t* planes) {
        const float* even = x + 2 * pair * DEPTH * HEIGHT * WIDTH;
        const bool alone = 2 * pair + 1 == CHANNELS;
        const float* odd = even + (alone ? 0 : DEPTH * HEIGHT * WIDTH);
        for (int64_t part = 0; part < 3; ++part) std::fill_n(planes + part * PART + pair * PLANE, PLANE, 0);
        for (int64_t line = 0; line < DEPTH * HEIGHT; ++line) {
            const int64_t z = line / HEIGHT + WINDOW::padding[0], y = line % HEIGHT + WINDOW::padding[1];
            uint32_t* to = planes + pair * PLANE + (z * padded(1) + y) * padded(2) + WINDOW::padding[2];
            for (int64_t i = 0; i < WIDTH; i += 16) {
                const __mmask16 some = first_of(WIDTH - i);
                __m512i low[3], high[3];
                split(_mm512_maskz_loadu_ps(some, even + line * WIDTH + i), low);
                split(_mm512_maskz_loadu_ps(alone ? 0 : some, odd + line * WIDTH + i), high);
                for (int part = 0; part < 3; ++part) {
                    const __m512i pairs = _mm512_or_si512(_mm512_srli_epi32(low[part], 16), high[part]);
                    _mm512_mask_storeu_epi32(to + part * PART + i, some, pairs);
                }
            }
        }
    }

    // Packs a panel of weights. The inner axis counts the taps, and the channels of each tap.
    static void pack_weights(const float* weight, int64_t panel, uint16_t* to) {
        std::vector<float> ordered(PANEL * TAPS * PAIRS * 2);
        for (int64_t row = 0; row < std::min(PANEL, OUT - panel * PANEL); ++row) {
            for (int64_t channel = 0; channel < CHANNELS; ++channel) {
                const float* from = weight + ((panel * PANEL + row) * CHANNELS + channel) * TAPS;
                for (int64_t tap = 0; tap < TAPS; ++tap) {
                    ordered[(row * TAPS + tap) * PAIRS * 2 + channel] = from[tap];
                }
            }
        }
        pack_rows({ordered.data(), 0, TAPS * PAIRS * 2, 1}, 0, 0, PANEL, TAPS * PAIRS * 2, to);
    }

    // The offsets at which the windows of 16 neighbouring outputs begin. If they form at most two contiguous ranges
    // (`two`), they are read by two loads, otherwise by a gather.
    struct Stretch {
        alignas(64) int32_t from[16];
        int64_t first = 0;
        bool two;

        explicit Stretch(int64_t place) {
            for (int64_t i = 0; i < 16; ++i) {
                const int64_t at = std::min(place + i, PLACES - 1);
                const int64_t z = at / (outputs(1) * outputs(2)), y = at / outputs(2) % outputs(1), x = at % outputs(2);
                from[i] = (z * WINDOW::stride[0] * padded(1) + y * WINDOW::stride[1]) * padded(2) + x * WINDOW::stride[2];
            }
            while (first < 16 && from[first] == from[0] + first) ++first;
            two = true;
            for (int64_t i = first; i < 16; ++i) two &= from[i] == from[first] + i - first || place + i >= PLACES;
        }

        __m512i read(const uint32_t* plane) const {
            if (!two) return _mm512_i32gather_epi32(_mm512_load_si512(from), plane, 4);
            const __mmask16 front = first_of(first);
            const __m512i one = _mm512_maskz_loadu_epi32(front, plane + from[0]);
            return first == 16 ? one : _mm512_mask_loadu_epi32(one, ~front, plane + from[first] - first);
        }
    };

    static void pack_places(const uint32_t* planes, int64_t panel, uint16_t* to) {
        const Stretch halves[2] = {Stretch(panel * PANEL), Stretch(panel * PANEL + 16)};
        int64_t row = 0;
        for (int64_t tap = 0; tap < TAPS; ++tap) {
            const int64_t shift = shift_of(tap);
            for (int64_t pair = 0; pair < PAIRS; ++pair, ++row) {
                uint16_t* line = to + row / 16 * PACKED + row % 16 * STEP;
                for (int64_t part = 0; part < 3; ++part) {
                    const uint32_t* plane = planes + part * PART + pair * PLANE + shift;
                    for (int64_t half = 0; half < 2; ++half) {
                        _mm512_store_si512(line + (part * PANEL + half * 16) * STEP, halves[half].read(plane));
                    }
                }
            }
        }
        for (; row < STEPS * 16; ++row) {
            for (int64_t tile = 0; tile < 6; ++tile) {
                _mm512_store_si512(to + row / 16 * PACKED + (tile * 16 + row % 16) * STEP, _mm512_setzero_si512());
            }
        }
    }

    // Returns a tail that drops the results at padding positions and passes the others on, line by line.
    template <class Tail>
    static auto without_padding(const Tail& tail) {
        return [&tail](int64_t image, int64_t row, int64_t first, int64_t count, const float* values) {
            for (int64_t at = first; at < first + count;) {
                const int64_t line = at / padded(2), x = at % padded(2), z = line / padded(1), y = line % padded(1);
                const int64_t left = std::min(first + count - at, padded(2) - x);
                const int64_t some = std::min(left, outputs(2) - x);
                if (some > 0 && y < outputs(1)) {
                    tail(image, row, (z * outputs(1) + y) * outputs(2) + x, some, values + (at - first));
                }
                at += left;
            }
        };
    }

    template <class Tail>
    static void run(const float* x, const float* weight, const Tail& tail) {
        constexpr int64_t COLUMNS = DIRECT ? WALK : PLACES;
        constexpr int64_t DOWN = pieces(OUT, PANEL), ACROSS = pieces(COLUMNS, PANEL), HIGH = 4;
        constexpr int64_t WIDE = std::max<int64_t>(1, std::min<int64_t>(8, (1 << 20) / (STEPS * PACKED * 2)));
        #pragma omp parallel
        {
            const Tiles tiles;
            const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
            // threads share the images if there are enough, otherwise the outputs of each image; a thread splits all
            // inputs that it reads
            const bool by_images = IMAGES >= threads;
            const Share images = by_images ? Share(IMAGES, thread, threads) : Share(IMAGES, 0, 1);
            const Share across = by_images ? Share(ACROSS, 0, 1) : Share(ACROSS, thread, threads);
            uint16_t* weights = scratch<uint16_t>(DOWN * STEPS * PACKED, 0);
            uint32_t* inputs = scratch<uint32_t>(3 * PART + PANEL, 1);
            float* sums = scratch<float>(HIGH * WIDE * PANEL * PANEL, 2);
            uint16_t* packed_places = scratch<uint16_t>(DIRECT ? 0 : WIDE * STEPS * PACKED, 3);
            for (int64_t panel = 0; panel < DOWN; ++panel) pack_weights(weight, panel, weights + panel * STEPS * PACKED);
            for (int64_t image = images.begin; image < images.end; ++image) {
                for (int64_t pair = 0; pair < PAIRS; ++pair) {
                    split_planes(x + image * CHANNELS * DEPTH * HEIGHT * WIDTH, pair, inputs);
                }
                for (int64_t side = across.begin; side < across.end; side += WIDE) {
                    const int64_t wide = std::min(WIDE, across.end - side);
                    for (int64_t j = 0; j < (DIRECT ? 0 : wide); ++j) {
                        pack_places(inputs, side + j, packed_places + j * STEPS * PACKED);
                    }
                    const auto panel = [&](int64_t, int64_t j, int64_t) {
                        if constexpr (DIRECT) return Inputs{inputs + (side + j) * PANEL};
                        else return Packed{packed_places + j * STEPS * PACKED, packed_places};
                    };
                    for (int64_t top = 0; top < DOWN; top += HIGH) {
                        const int64_t high = std::min(HIGH, DOWN - top);
                        multiply_block<STEPS, WIDE>(weights + top * STEPS * PACKED, panel, high, wide, sums);
                        if constexpr (DIRECT) {
                            hand_over<WIDE, OUT, COLUMNS>(image, top, side, high, wide, sums, without_padding(tail));
                        } else {
                            hand_over<WIDE, OUT, COLUMNS>(image, top, side, high, wide, sums, tail);
                        }
                    }
                }
            }
        }
    }
};
