// Where the numbers of many matrices lie.
struct Matrix {
    const float* data;
    int64_t batch, down, across;  // elements between matrices, rows and columns
};

constexpr int64_t pieces(int64_t size, int64_t piece) { return (size + piece - 1) / piece; }

// What a thread does of some equal pieces.
struct Share {
    int64_t begin, end;
    Share(int64_t pieces, int64_t part, int64_t parts) : begin(pieces * part / parts), end(pieces * (part + 1) / parts) {}
};
