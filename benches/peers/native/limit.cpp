// The limit of memory and of the widest vectors. For a select, a plain loop that reads both sides, takes one of them by
// the condition, and stores; for a graph, a loop that reads as many bytes as its inputs are, and writes as many as its
// result. It knows nothing of the values, and no library stands around it. `--stores` chooses ordinary or streaming
// (non-temporal) stores; the better of the two is the limit.
#include "server.hpp"

#include <algorithm>
#include <array>
#include <functional>

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>
#define VECTORS 1
#endif

namespace {

// Where an operand lies along one loop: its step in elements is 0 or 1 along the inner loop.
struct Loop {
    size_t length;
    std::array<size_t, 3> steps;
};

struct Operands {
    const uint8_t *cond, *then, *else_;
    uint8_t *dst;
};

template <size_t W> struct Uint;
template <> struct Uint<1> { using type = uint8_t; };
template <> struct Uint<2> { using type = uint16_t; };
template <> struct Uint<4> { using type = uint32_t; };
template <> struct Uint<8> { using type = uint64_t; };

// One row, element by element. `C`, `T` and `E` say whether an operand moves along.
template <size_t W, bool C, bool T, bool E>
void plain_row(const Operands &o, size_t begin, size_t end) {
    using U = typename Uint<W>::type;
    const U *then = reinterpret_cast<const U *>(o.then), *else_ = reinterpret_cast<const U *>(o.else_);
    U *dst = reinterpret_cast<U *>(o.dst);
#pragma GCC ivdep
    for (size_t i = begin; i < end; ++i) dst[i] = o.cond[C ? i : 0] ? then[T ? i : 0] : else_[E ? i : 0];
}

#ifdef VECTORS
template <size_t W> struct Vector;
template <> struct Vector<1> {
    static __mmask64 mask(const uint8_t *p) {
        const __m512i bytes = _mm512_loadu_si512(p);
        return _mm512_test_epi8_mask(bytes, bytes);
    }
    static __m512i fill(uint8_t x) { return _mm512_set1_epi8(static_cast<char>(x)); }
    static __m512i blend(__mmask64 m, __m512i e, __m512i t) { return _mm512_mask_blend_epi8(m, e, t); }
};
template <> struct Vector<2> {
    static __mmask32 mask(const uint8_t *p) {
        const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
        return _mm256_test_epi8_mask(bytes, bytes);
    }
    static __m512i fill(uint16_t x) { return _mm512_set1_epi16(static_cast<short>(x)); }
    static __m512i blend(__mmask32 m, __m512i e, __m512i t) { return _mm512_mask_blend_epi16(m, e, t); }
};
template <> struct Vector<4> {
    static __mmask16 mask(const uint8_t *p) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
        return _mm_test_epi8_mask(bytes, bytes);
    }
    static __m512i fill(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
    static __m512i blend(__mmask16 m, __m512i e, __m512i t) { return _mm512_mask_blend_epi32(m, e, t); }
};
template <> struct Vector<8> {
    static __mmask8 mask(const uint8_t *p) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(p));
        return static_cast<__mmask8>(_mm_test_epi8_mask(bytes, bytes));
    }
    static __m512i fill(uint64_t x) { return _mm512_set1_epi64(static_cast<long long>(x)); }
    static __m512i blend(__mmask8 m, __m512i e, __m512i t) { return _mm512_mask_blend_epi64(m, e, t); }
};

template <bool S>
void store(uint8_t *p, __m512i value) {
    if constexpr (S) _mm512_stream_si512(reinterpret_cast<__m512i *>(p), value);
    else _mm512_storeu_si512(p, value);
}

template <size_t W, bool S, bool C, bool T, bool E>
void vector_row(const Operands &o, size_t length) {
    using U = typename Uint<W>::type;
    using V = Vector<W>;
    using Mask = decltype(V::mask(nullptr));
    constexpr size_t lanes = 64 / W;
    // Streaming stores need whole cache lines.
    const size_t to_line = (64 - reinterpret_cast<uintptr_t>(o.dst) % 64) % 64 / W;
    const size_t head = S ? std::min(length, to_line) : 0;
    const size_t end = head + (length - head) / lanes * lanes;
    plain_row<W, C, T, E>(o, 0, head);
    const Mask same = *o.cond ? static_cast<Mask>(~Mask {0}) : Mask {0};
    const __m512i then = V::fill(*reinterpret_cast<const U *>(o.then));
    const __m512i else_ = V::fill(*reinterpret_cast<const U *>(o.else_));
#pragma GCC unroll 4
    for (size_t i = head; i < end; i += lanes) {
        const Mask m = C ? V::mask(o.cond + i) : same;
        const __m512i t = T ? _mm512_loadu_si512(o.then + i * W) : then;
        const __m512i e = E ? _mm512_loadu_si512(o.else_ + i * W) : else_;
        store<S>(o.dst + i * W, V::blend(m, e, t));
    }
    plain_row<W, C, T, E>(o, end, length);
}
#endif

template <size_t W, bool S, bool C, bool T, bool E>
void row(const Operands &o, size_t length) {
#ifdef VECTORS
    vector_row<W, S, C, T, E>(o, length);
#else
    plain_row<W, C, T, E>(o, 0, length);
#endif
}

using Row = void (*)(const Operands &, size_t);

template <size_t W, bool S>
Row row_for(const std::array<size_t, 3> &steps) {
    static constexpr Row rows[2][2][2] {
            {{row<W, S, 0, 0, 0>, row<W, S, 0, 0, 1>}, {row<W, S, 0, 1, 0>, row<W, S, 0, 1, 1>}},
            {{row<W, S, 1, 0, 0>, row<W, S, 1, 0, 1>}, {row<W, S, 1, 1, 0>, row<W, S, 1, 1, 1>}}};
    return rows[steps[0]][steps[1]][steps[2]];
}

template <bool S>
Row row_for(size_t width, const std::array<size_t, 3> &steps) {
    switch (width) {
        case 1: return row_for<1, S>(steps);
        case 2: return row_for<2, S>(steps);
        case 4: return row_for<4, S>(steps);
        default: return row_for<8, S>(steps);
    }
}

// Steps of an operand along the dims of the result, 0 where it is repeated.
std::vector<size_t> steps_of(const peers::Dims &dims, size_t rank) {
    std::vector<size_t> steps(rank, 0);
    size_t step = 1;
    for (size_t i = 0; i < dims.size(); ++i) {
        const size_t dim = static_cast<size_t>(dims[dims.size() - 1 - i]);
        steps[rank - 1 - i] = dim == 1 ? 0 : step;
        step *= dim;
    }
    return steps;
}

// The loops from the outermost to the innermost; two along which all operands walk alike are one.
std::vector<Loop> loops_of(const peers::Case &c) {
    const size_t rank = c.dst.dims.size();
    const std::array<std::vector<size_t>, 3> steps {steps_of(c.inputs.at(0).dims, rank),
            steps_of(c.inputs.at(1).dims, rank), steps_of(c.inputs.at(2).dims, rank)};
    std::vector<Loop> loops;
    for (size_t i = 0; i < rank; ++i) {
        const Loop loop {static_cast<size_t>(c.dst.dims[i]), {steps[0][i], steps[1][i], steps[2][i]}};
        if (loop.length == 1) continue;
        const auto walks_on = [&](const Loop &outer) {
            for (size_t k = 0; k < 3; ++k)
                if (outer.steps[k] != loop.steps[k] * loop.length) return false;
            return true;
        };
        if (!loops.empty() && walks_on(loops.back())) loops.back() = {loops.back().length * loop.length, loop.steps};
        else loops.push_back(loop);
    }
    if (loops.empty()) loops.push_back({1, {0, 0, 0}});
    return loops;
}

// Runs the parts, one a thread.
template <typename Run>
void in_parts(size_t threads, const Run &run) {
    if (threads == 1) return run(0, 1);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (size_t part = 0; part < threads; ++part) run(part, threads);
}

// Until streaming stores are seen by all.
void fence() {
#ifdef VECTORS
    _mm_sfence();
#endif
}

struct Select {
    std::vector<Loop> outer;
    Loop inner;
    Operands base;
    Row row;
    size_t width, rows, threads;

    // Operands of one row, `skip` elements into it.
    Operands at(size_t index, size_t skip) const {
        Operands o = base;
        o.dst += (index * inner.length + skip) * width;
        std::array<size_t, 3> offsets {};
        for (size_t k = 0; k < 3; ++k) offsets[k] = skip * inner.steps[k];
        for (size_t i = outer.size(); i-- > 0;) {
            const size_t at = index % outer[i].length;
            index /= outer[i].length;
            for (size_t k = 0; k < 3; ++k) offsets[k] += at * outer[i].steps[k];
        }
        o.cond += offsets[0];
        o.then += offsets[1] * width;
        o.else_ += offsets[2] * width;
        return o;
    }

    // Part `part` of `parts`: a range of rows, or a range of the only row.
    void run(size_t part, size_t parts) const {
        if (rows == 1) {
            const size_t chunk = (inner.length / parts + 63) / 64 * 64;
            const size_t begin = std::min(inner.length, chunk * part);
            const size_t end = part + 1 == parts ? inner.length : std::min(inner.length, begin + chunk);
            if (begin < end) row(at(0, begin), end - begin);
        } else {
            for (size_t i = rows * part / parts; i < rows * (part + 1) / parts; ++i) row(at(i, 0), inner.length);
        }
        fence();
    }

    void operator()() const {
        in_parts(threads, [this](size_t part, size_t parts) { run(part, parts); });
    }
};

Select prepare_select(const peers::Case &c, bool streaming) {
    std::vector<Loop> loops = loops_of(c);
    const Loop inner = loops.back();
    loops.pop_back();
    const size_t width = c.dst.width();
    const Row row = streaming ? row_for<true>(width, inner.steps) : row_for<false>(width, inner.steps);
    const auto &in = c.inputs;
    const Operands base {in[0].data.get(), in[1].data.get(), in[2].data.get(), c.dst.data.get()};
    return {loops, inner, base, row, width, peers::count(c.dst.dims) / inner.length, static_cast<size_t>(c.threads)};
}

// Reads and writes in turn, a page each, with nothing between.
template <bool S>
struct Stream {
    static constexpr size_t line = 64, page = 4096;
    using Line = uint64_t __attribute__((vector_size(line), aligned(1), may_alias));

    std::shared_ptr<uint8_t> from;
    uint8_t *to;
    // In lines.
    size_t read, written, threads;

    static void put(uint8_t *p, Line value) {
#ifdef VECTORS
        store<S>(p, reinterpret_cast<__m512i>(value));
#else
        *reinterpret_cast<Line *>(p) = value;
#endif
    }

    void run(size_t part, size_t parts) const {
        const size_t pages = std::max(read, written) * line / page + 1;
        Line sum {};
        for (size_t i = pages * part / parts; i < pages * (part + 1) / parts; ++i) {
            for (size_t k = read * i / pages; k < read * (i + 1) / pages; ++k)
                sum ^= *reinterpret_cast<const Line *>(from.get() + k * line);
            for (size_t k = written * i / pages; k < written * (i + 1) / pages; ++k) put(to + k * line, sum);
        }
        fence();
    }

    void operator()() const {
        in_parts(threads, [this](size_t part, size_t parts) { run(part, parts); });
    }
};

template <bool S>
Stream<S> prepare_stream(const peers::Case &c) {
    const size_t read = std::stoull(c.option("--read"));
    std::shared_ptr<uint8_t> from = peers::allocate(read + 64);
    std::memset(from.get(), 0x5a, read + 64);
    // The memory of the result ends with a whole line.
    const auto lines = [](size_t bytes) { return (bytes + 63) / 64; };
    return {from, c.dst.data.get(), lines(read), lines(c.dst.bytes()), static_cast<size_t>(c.threads)};
}

std::function<void()> prepare(const peers::Case &c) {
    const bool streaming = c.option("--stores") == "streaming";
    if (c.is_select()) return prepare_select(c, streaming);
    if (streaming) return prepare_stream<true>(c);
    return prepare_stream<false>(c);
}

} // namespace

int main(int argc, char **argv) {
    return peers::serve(argc, argv, [](const peers::Case &c) {
#ifdef VECTORS
        const char *version = "AVX-512 by hand, g++ " __VERSION__;
#else
        const char *version = "the compiler's vectors, g++ " __VERSION__;
#endif
        return std::pair(std::string(version), prepare(c));
    });
}
