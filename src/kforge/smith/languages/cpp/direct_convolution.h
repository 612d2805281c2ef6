// A direct convolution, without a matrix of windows: a vector of neighbouring outputs adds, for each tap, a vector of
// neighbouring inputs times the tap's weight. In a transposed convolution, the outputs whose distance is a multiple of
// the stride form a phase; they read the same taps and are computed together. Inputs are copied into a zero-padded
// frame, which is processed as one long line; results between two lines of the frame are dropped.
template <int64_t IMAGES, int64_t CHANNELS, int64_t OUT, int64_t GROUPS, class WINDOW>
struct DirectConvolution {
    // Up to six filters times VECTORS vectors of sums fit into the processor's registers, with their inputs.
#if defined(__AVX512F__)
    static constexpr int64_t LANES = 16, VECTORS = 4;
#elif defined(__AVX__)
    static constexpr int64_t LANES = 8, VECTORS = 2;
#else
    static constexpr int64_t LANES = 4, VECTORS = 2;
#endif
    static constexpr int64_t CHUNK = LANES * VECTORS;
    static constexpr int64_t IN = CHANNELS / GROUPS, FILTERS = OUT / GROUPS, TALL = pieces(FILTERS, pieces(FILTERS, 6));
    static constexpr int64_t IN_LAYER = WINDOW::size[1] * WINDOW::size[2], TAPS = WINDOW::size[0] * IN_LAYER;
    typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

    static constexpr int64_t phases(int axis) { return WINDOW::transposed ? WINDOW::stride[axis] : 1; }
    static constexpr int64_t PHASES = phases(0) * phases(1) * phases(2);
    static constexpr int64_t places(int axis) { return pieces(WINDOW::out[axis], phases(axis)); }

    // The distance between an output of this phase and the input that it reads for a tap, times the stride. If the
    // stride does not divide it, the phase does not use the tap.
    static constexpr int64_t times_stride(int axis, int64_t phase, int64_t tap) {
        return WINDOW::transposed ? phase + WINDOW::padding[axis] - tap * WINDOW::dilation[axis]
                                  : tap * WINDOW::dilation[axis] - WINDOW::padding[axis];
    }
    static constexpr bool reads(int axis, int64_t phase, int64_t tap) {
        return times_stride(axis, phase, tap) % phases(axis) == 0;
    }
    static constexpr int64_t shift(int axis, int64_t phase, int64_t tap) {
        return times_stride(axis, phase, tap) / phases(axis);
    }
    static constexpr int64_t farthest(int axis, int64_t sign) {
        int64_t most = -(int64_t{1} << 40);
        for (int64_t phase = 0; phase < phases(axis); ++phase) {
            for (int64_t tap = 0; tap < WINDOW::size[axis]; ++tap) {
                if (reads(axis, phase, tap)) most = std::max(most, sign * shift(axis, phase, tap));
            }
        }
        return most;
    }
    static constexpr int64_t low(int axis) { return -farthest(axis, -1); }

    // Threads share the images, groups and slabs. The first axis with more than one position is cut into slabs, whose
    // results stay in the L1 or L2 cache.
    static constexpr int SPLIT = places(0) > 1 ? 0 : places(1) > 1 ? 1 : 2;
    static constexpr int64_t LAYER = (SPLIT < 1 ? places(1) : 1) * (SPLIT < 2 ? places(2) : 1) * PHASES;
    static constexpr int64_t THICK =
        std::max<int64_t>(1, std::min(pieces(places(SPLIT), pieces(16, IMAGES * GROUPS)), 8192 / LAYER));
    static constexpr int64_t SLABS = pieces(places(SPLIT), THICK);
    static constexpr int64_t count(int axis) { return axis == SPLIT ? THICK : places(axis); }
    static constexpr int64_t extent(int axis) { return count(axis) + farthest(axis, 1) - low(axis); }
    static constexpr int64_t WALK = ((count(0) - 1) * extent(1) + count(1) - 1) * extent(2) + count(2);
    static constexpr int64_t LINE = pieces(WALK, CHUNK) * CHUNK;
    // Elements of a plane: an odd number of cache lines, so that planes do not compete for the same cache sets. Vectors
    // may read beyond the plane's last element.
    static constexpr int64_t PLANE = (extent(0) * extent(1) * extent(2) + CHUNK + 31) / 32 * 32 + 16;

    // The taps, sorted by phase: every tap belongs to exactly one phase.
    struct Taps {
        int64_t starts[PHASES + 1] = {}, shifts[TAPS], weights[TAPS];

        Taps() {
            for (int64_t phase = 0, many = 0; phase < PHASES; starts[++phase] = many) {
                const int64_t z = phase / (phases(1) * phases(2)), y = phase / phases(2) % phases(1);
                const int64_t x = phase % phases(2);
                for (int64_t tap = 0; tap < TAPS; ++tap) {
                    const int64_t deep = tap / IN_LAYER, in_layer = tap % IN_LAYER;
                    const int64_t down = in_layer / WINDOW::size[2], across = in_layer % WINDOW::size[2];
                    if (!reads(0, z, deep) || !reads(1, y, down) || !reads(2, x, across)) continue;
                    const int64_t layer = shift(0, z, deep) - low(0), line = shift(1, y, down) - low(1);
                    weights[many] = tap;
                    shifts[many++] = (layer * extent(1) + line) * extent(2) + shift(2, x, across) - low(2);
                }
            }
        }
    };

    // Copies the elements of a channel that a slab reads into the frame, with zeros for the padding.
    static void copy(const float* x, const int64_t (&first)[3], float* plane) {
        const int64_t left = first[2] + low(2), begin = std::max<int64_t>(0, -left);
        const int64_t end = std::min(extent(2), WINDOW::in[2] - left);
        for (int64_t z = 0; z < extent(0); ++z) {
            for (int64_t y = 0; y < extent(1); ++y) {
                float* to = plane + (z * extent(1) + y) * extent(2);
                const int64_t deep = first[0] + low(0) + z, down = first[1] + low(1) + y;
                if (deep < 0 || deep >= WINDOW::in[0] || down < 0 || down >= WINDOW::in[1] || begin >= end) {
                    std::fill_n(to, extent(2), 0.0f);
                    continue;
                }
                const float* from = x + (deep * WINDOW::in[1] + down) * WINDOW::in[2] + left;
                std::fill_n(to, begin, 0.0f);
                std::copy(from + begin, from + end, to + begin);
                std::fill(to + end, to + extent(2), 0.0f);
            }
        }
    }

    // Computes the outputs of one phase for `ROWS` filters.
    template <int64_t ROWS>
    static void add_up(
        const float* frame, const Taps& taps, int64_t phase, const float* weight, int64_t down, int64_t across,
        float* lines) {
        for (int64_t place = 0; place < LINE; place += CHUNK) {
            Vector sums[ROWS][VECTORS] = {};
            for (int64_t channel = 0; channel < IN; ++channel) {
                const float* plane = frame + channel * PLANE + place;
                const float* filters = weight + channel * across;
                for (int64_t tap = taps.starts[phase]; tap < taps.starts[phase + 1]; ++tap) {
                    const Vector* inputs = reinterpret_cast<const Vector*>(plane + taps.shifts[tap]);
                    for (int64_t row = 0; row < ROWS; ++row) {
                        const float factor = filters[row * down + taps.weights[tap]];
                        for (int64_t v = 0; v < VECTORS; ++v) sums[row][v] += factor * inputs[v];
                    }
                }
            }
            for (int64_t row = 0; row < ROWS; ++row) {
                std::memcpy(lines + row * LINE + place, sums[row], sizeof sums[row]);
            }
        }
    }

    // Passes the outputs of one channel to the tail, line by line, with the phases interleaved as in memory.
    template <class Tail>
    static void hand_over(
        const float* lines, const int64_t (&first)[3], int64_t image, int64_t channel, float* line, const Tail& tail) {
        const int64_t left = first[2] * phases(2), many = std::min(count(2) * phases(2), WINDOW::out[2] - left);
        for (int64_t z = 0; z < count(0) * phases(0) && first[0] * phases(0) + z < WINDOW::out[0]; ++z) {
            for (int64_t y = 0; y < count(1) * phases(1) && first[1] * phases(1) + y < WINDOW::out[1]; ++y) {
                const int64_t phase = (z % phases(0) * phases(1) + y % phases(1)) * phases(2);
                const int64_t walked = (z / phases(0) * extent(1) + y / phases(1)) * extent(2);
                const float* from = lines + phase * TALL * LINE + walked;
                for (int64_t part = 0; part < phases(2); ++part) {
                    for (int64_t i = 0; i < count(2); ++i) line[i * phases(2) + part] = from[part * TALL * LINE + i];
                }
                const int64_t at = (first[0] * phases(0) + z) * WINDOW::out[1] + first[1] * phases(1) + y;
                tail(image, channel, at * WINDOW::out[2] + left, many, line);
            }
        }
    }

    template <int64_t ROWS, class Tail>
    static void filter(
        const float* frame, const Taps& taps, const float* weight, const int64_t (&first)[3], int64_t image,
        int64_t channel, float* lines, const Tail& tail) {
        constexpr bool swapped = WINDOW::transposed;  // then the weights' first axis is that of the input channels
        constexpr int64_t down = swapped ? TAPS : IN * TAPS, across = swapped ? FILTERS * TAPS : TAPS;
        const int64_t group = channel / FILTERS, own = channel % FILTERS;
        const float* filters = weight + (group * FILTERS * IN * TAPS + own * down);
        for (int64_t phase = 0; phase < PHASES; ++phase) {
            add_up<ROWS>(frame, taps, phase, filters, down, across, lines + phase * TALL * LINE);
        }
        float* line = lines + PHASES * TALL * LINE;
        for (int64_t row = 0; row < ROWS; ++row) hand_over(lines + row * LINE, first, image, channel + row, line, tail);
    }

    template <class Tail>
    static void run(const float* x, const float* weight, const Tail& tail) {
        static const Taps taps;
        #pragma omp parallel for
        for (int64_t part = 0; part < IMAGES * GROUPS * SLABS; ++part) {
            static thread_local std::vector<float> frame(IN * PLANE);
            static thread_local std::vector<float> lines(PHASES * TALL * LINE + count(2) * phases(2));
            const int64_t image = part / (GROUPS * SLABS), group = part / SLABS % GROUPS, slab = part % SLABS;
            int64_t first[3] = {};
            first[SPLIT] = slab * THICK;
            for (int64_t channel = 0; channel < IN; ++channel) {
                const int64_t plane = (image * GROUPS + group) * IN + channel;
                const float* from = x + plane * WINDOW::in[0] * WINDOW::in[1] * WINDOW::in[2];
                copy(from, first, frame.data() + channel * PLANE);
            }
            int64_t channel = group * FILTERS;
            for (; channel + TALL <= (group + 1) * FILTERS; channel += TALL) {
                filter<TALL>(frame.data(), taps, weight, first, image, channel, lines.data(), tail);
            }
            if constexpr (FILTERS % TALL != 0) {
                filter<FILTERS % TALL>(frame.data(), taps, weight, first, image, channel, lines.data(), tail);
            }
        }
    }
};
