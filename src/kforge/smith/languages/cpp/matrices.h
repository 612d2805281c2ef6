// A batch of matrices in memory.
struct Matrix {
    const float* data;
    int64_t batch, down, across;  // strides between matrices, rows and columns, in elements
};

constexpr int64_t pieces(int64_t size, int64_t piece) { return (size + piece - 1) / piece; }

// The range of pieces that one thread processes, if `pieces` pieces are divided into `parts` ranges.
struct Share {
    int64_t begin, end;
    Share(int64_t pieces, int64_t part, int64_t parts) : begin(pieces * part / parts), end(pieces * (part + 1) / parts) {}
};
