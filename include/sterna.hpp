// Sterna for C++17: objects that own what they stand for, exceptions instead of statuses.
//
// This is a layer over sterna.h, whose documentation says what each call does; here stands what C++ adds. Objects are
// moved, not copied, and destroy what they own. A call that fails throws `sterna::error` with the status and the
// sentence of the library. What is said in sterna.h of threads holds here, too.
#ifndef STERNA_HPP
#define STERNA_HPP

#include "sterna.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace sterna {

// The numbers of sterna.h by name; written by the test of this header.

enum class status : int {
    success = STERNA_STATUS_SUCCESS, out_of_memory = STERNA_STATUS_OUT_OF_MEMORY,
    invalid_arguments = STERNA_STATUS_INVALID_ARGUMENTS, unimplemented = STERNA_STATUS_UNIMPLEMENTED,
    last_impl_reached = STERNA_STATUS_LAST_IMPL_REACHED, runtime_error = STERNA_STATUS_RUNTIME_ERROR,
    not_required = STERNA_STATUS_NOT_REQUIRED, invalid_graph = STERNA_STATUS_INVALID_GRAPH,
    invalid_graph_op = STERNA_STATUS_INVALID_GRAPH_OP, invalid_shape = STERNA_STATUS_INVALID_SHAPE,
    invalid_data_type = STERNA_STATUS_INVALID_DATA_TYPE,
};

enum class data_type : int {
    undef = STERNA_DATA_TYPE_UNDEF, f16 = STERNA_DATA_TYPE_F16, bf16 = STERNA_DATA_TYPE_BF16,
    f32 = STERNA_DATA_TYPE_F32, s32 = STERNA_DATA_TYPE_S32, s8 = STERNA_DATA_TYPE_S8,
    u8 = STERNA_DATA_TYPE_U8, f64 = STERNA_DATA_TYPE_F64, boolean = STERNA_DATA_TYPE_BOOLEAN,
    f8_e5m2 = STERNA_DATA_TYPE_F8_E5M2, f8_e4m3 = STERNA_DATA_TYPE_F8_E4M3, s4 = STERNA_DATA_TYPE_S4,
    u4 = STERNA_DATA_TYPE_U4, e8m0 = STERNA_DATA_TYPE_E8M0, f4_e2m1 = STERNA_DATA_TYPE_F4_E2M1,
    f4_e3m0 = STERNA_DATA_TYPE_F4_E3M0, s64 = STERNA_DATA_TYPE_S64, s16 = STERNA_DATA_TYPE_S16,
    u16 = STERNA_DATA_TYPE_U16, u32 = STERNA_DATA_TYPE_U32, u64 = STERNA_DATA_TYPE_U64,
};

enum class layout_type : int {
    undef = STERNA_LAYOUT_TYPE_UNDEF, any = STERNA_LAYOUT_TYPE_ANY, strided = STERNA_LAYOUT_TYPE_STRIDED,
    opaque = STERNA_LAYOUT_TYPE_OPAQUE,
};

enum class property : int {
    undef = STERNA_TENSOR_PROPERTY_UNDEF, variable = STERNA_TENSOR_PROPERTY_VARIABLE,
    constant = STERNA_TENSOR_PROPERTY_CONSTANT, host_scalar = STERNA_TENSOR_PROPERTY_HOST_SCALAR,
};

enum class op_kind : int {
    abs = STERNA_OP_ABS, abs_backward = STERNA_OP_ABS_BACKWARD, add = STERNA_OP_ADD,
    avg_pool = STERNA_OP_AVG_POOL, avg_pool_backward = STERNA_OP_AVG_POOL_BACKWARD,
    batch_norm_training_backward = STERNA_OP_BATCH_NORM_TRAINING_BACKWARD,
    batch_norm_forward_training = STERNA_OP_BATCH_NORM_FORWARD_TRAINING,
    batch_norm_inference = STERNA_OP_BATCH_NORM_INFERENCE, bias_add = STERNA_OP_BIAS_ADD,
    bias_add_backward = STERNA_OP_BIAS_ADD_BACKWARD, clamp = STERNA_OP_CLAMP,
    clamp_backward = STERNA_OP_CLAMP_BACKWARD, concat = STERNA_OP_CONCAT,
    convolution = STERNA_OP_CONVOLUTION, convolution_backward_data = STERNA_OP_CONVOLUTION_BACKWARD_DATA,
    convolution_backward_weights = STERNA_OP_CONVOLUTION_BACKWARD_WEIGHTS,
    conv_transpose = STERNA_OP_CONV_TRANSPOSE,
    conv_transpose_backward_data = STERNA_OP_CONV_TRANSPOSE_BACKWARD_DATA,
    conv_transpose_backward_weights = STERNA_OP_CONV_TRANSPOSE_BACKWARD_WEIGHTS,
    dequantize = STERNA_OP_DEQUANTIZE, divide = STERNA_OP_DIVIDE,
    dynamic_dequantize = STERNA_OP_DYNAMIC_DEQUANTIZE, dynamic_quantize = STERNA_OP_DYNAMIC_QUANTIZE,
    elu = STERNA_OP_ELU, elu_backward = STERNA_OP_ELU_BACKWARD, end = STERNA_OP_END, exp = STERNA_OP_EXP,
    gelu = STERNA_OP_GELU, gelu_backward = STERNA_OP_GELU_BACKWARD, hard_swish = STERNA_OP_HARD_SWISH,
    hard_swish_backward = STERNA_OP_HARD_SWISH_BACKWARD, interpolate = STERNA_OP_INTERPOLATE,
    interpolate_backward = STERNA_OP_INTERPOLATE_BACKWARD, layer_norm = STERNA_OP_LAYER_NORM,
    layer_norm_backward = STERNA_OP_LAYER_NORM_BACKWARD, leaky_relu = STERNA_OP_LEAKY_RELU,
    log = STERNA_OP_LOG, log_softmax = STERNA_OP_LOG_SOFTMAX,
    log_softmax_backward = STERNA_OP_LOG_SOFTMAX_BACKWARD, matmul = STERNA_OP_MATMUL,
    maximum = STERNA_OP_MAXIMUM, max_pool = STERNA_OP_MAX_POOL,
    max_pool_backward = STERNA_OP_MAX_POOL_BACKWARD, minimum = STERNA_OP_MINIMUM, mish = STERNA_OP_MISH,
    mish_backward = STERNA_OP_MISH_BACKWARD, multiply = STERNA_OP_MULTIPLY, prelu = STERNA_OP_PRELU,
    prelu_backward = STERNA_OP_PRELU_BACKWARD, quantize = STERNA_OP_QUANTIZE,
    reciprocal = STERNA_OP_RECIPROCAL, reduce_l1 = STERNA_OP_REDUCE_L1, reduce_l2 = STERNA_OP_REDUCE_L2,
    reduce_max = STERNA_OP_REDUCE_MAX, reduce_mean = STERNA_OP_REDUCE_MEAN,
    reduce_min = STERNA_OP_REDUCE_MIN, reduce_prod = STERNA_OP_REDUCE_PROD,
    reduce_sum = STERNA_OP_REDUCE_SUM, relu = STERNA_OP_RELU, relu_backward = STERNA_OP_RELU_BACKWARD,
    reorder = STERNA_OP_REORDER, round = STERNA_OP_ROUND, sigmoid = STERNA_OP_SIGMOID,
    sigmoid_backward = STERNA_OP_SIGMOID_BACKWARD, softmax = STERNA_OP_SOFTMAX,
    softmax_backward = STERNA_OP_SOFTMAX_BACKWARD, softplus = STERNA_OP_SOFTPLUS,
    softplus_backward = STERNA_OP_SOFTPLUS_BACKWARD, sqrt = STERNA_OP_SQRT,
    sqrt_backward = STERNA_OP_SQRT_BACKWARD, square = STERNA_OP_SQUARE,
    squared_difference = STERNA_OP_SQUARED_DIFFERENCE, static_reshape = STERNA_OP_STATIC_RESHAPE,
    static_transpose = STERNA_OP_STATIC_TRANSPOSE, subtract = STERNA_OP_SUBTRACT, tanh = STERNA_OP_TANH,
    tanh_backward = STERNA_OP_TANH_BACKWARD, type_cast = STERNA_OP_TYPE_CAST, wildcard = STERNA_OP_WILDCARD,
    hard_sigmoid = STERNA_OP_HARD_SIGMOID, hard_sigmoid_backward = STERNA_OP_HARD_SIGMOID_BACKWARD,
    select = STERNA_OP_SELECT, pow = STERNA_OP_POW, group_norm = STERNA_OP_GROUP_NORM,
    gen_index = STERNA_OP_GEN_INDEX, greater_equal = STERNA_OP_GREATER_EQUAL, rms_norm = STERNA_OP_RMS_NORM,
    dropout = STERNA_OP_DROPOUT, equal = STERNA_OP_EQUAL, not_equal = STERNA_OP_NOT_EQUAL,
    less = STERNA_OP_LESS, less_equal = STERNA_OP_LESS_EQUAL, greater = STERNA_OP_GREATER,
    logical_and = STERNA_OP_LOGICAL_AND, logical_or = STERNA_OP_LOGICAL_OR,
    logical_xor = STERNA_OP_LOGICAL_XOR, logical_not = STERNA_OP_LOGICAL_NOT, is_nan = STERNA_OP_IS_NAN,
    is_inf = STERNA_OP_IS_INF, is_finite = STERNA_OP_IS_FINITE, identity = STERNA_OP_IDENTITY,
    negative = STERNA_OP_NEGATIVE, floor = STERNA_OP_FLOOR, ceil = STERNA_OP_CEIL, fill = STERNA_OP_FILL,
    cast = STERNA_OP_CAST, modulo = STERNA_OP_MODULO, sin = STERNA_OP_SIN, cos = STERNA_OP_COS,
    slice = STERNA_OP_SLICE, cum_sum = STERNA_OP_CUM_SUM, gather = STERNA_OP_GATHER,
    gather_elements = STERNA_OP_GATHER_ELEMENTS, gather_nd = STERNA_OP_GATHER_ND,
    gather_backward = STERNA_OP_GATHER_BACKWARD, scatter_elements = STERNA_OP_SCATTER_ELEMENTS,
    scatter_nd = STERNA_OP_SCATTER_ND, top_k = STERNA_OP_TOP_K, arg_max = STERNA_OP_ARG_MAX,
    arg_min = STERNA_OP_ARG_MIN, paged_load = STERNA_OP_PAGED_LOAD, cache_store = STERNA_OP_CACHE_STORE,
    power = STERNA_OP_POWER,
};

enum class op_attr : int {
    alpha = STERNA_ATTR_ALPHA, beta = STERNA_ATTR_BETA, epsilon = STERNA_ATTR_EPSILON, max = STERNA_ATTR_MAX,
    min = STERNA_ATTR_MIN, momentum = STERNA_ATTR_MOMENTUM, scales = STERNA_ATTR_SCALES,
    axis = STERNA_ATTR_AXIS, begin_norm_axis = STERNA_ATTR_BEGIN_NORM_AXIS, groups = STERNA_ATTR_GROUPS,
    axes = STERNA_ATTR_AXES, dilations = STERNA_ATTR_DILATIONS, dst_shape = STERNA_ATTR_DST_SHAPE,
    kernel = STERNA_ATTR_KERNEL, order = STERNA_ATTR_ORDER, output_padding = STERNA_ATTR_OUTPUT_PADDING,
    pads_begin = STERNA_ATTR_PADS_BEGIN, pads_end = STERNA_ATTR_PADS_END, shape = STERNA_ATTR_SHAPE,
    sizes = STERNA_ATTR_SIZES, src_shape = STERNA_ATTR_SRC_SHAPE, strides = STERNA_ATTR_STRIDES,
    weights_shape = STERNA_ATTR_WEIGHTS_SHAPE, zps = STERNA_ATTR_ZPS, group_shape = STERNA_ATTR_GROUP_SHAPE,
    exclude_pad = STERNA_ATTR_EXCLUDE_PAD, keep_dims = STERNA_ATTR_KEEP_DIMS,
    keep_stats = STERNA_ATTR_KEEP_STATS, per_channel_broadcast = STERNA_ATTR_PER_CHANNEL_BROADCAST,
    special_zero = STERNA_ATTR_SPECIAL_ZERO, transpose_a = STERNA_ATTR_TRANSPOSE_A,
    transpose_b = STERNA_ATTR_TRANSPOSE_B, use_affine = STERNA_ATTR_USE_AFFINE,
    use_dst = STERNA_ATTR_USE_DST, auto_broadcast = STERNA_ATTR_AUTO_BROADCAST,
    auto_pad = STERNA_ATTR_AUTO_PAD,
    coordinate_transformation_mode = STERNA_ATTR_COORDINATE_TRANSFORMATION_MODE,
    data_format = STERNA_ATTR_DATA_FORMAT, mode = STERNA_ATTR_MODE, qtype = STERNA_ATTR_QTYPE,
    rounding_type = STERNA_ATTR_ROUNDING_TYPE, weights_format = STERNA_ATTR_WEIGHTS_FORMAT,
    accumulation_mode = STERNA_ATTR_ACCUMULATION_MODE, value = STERNA_ATTR_VALUE,
    starts = STERNA_ATTR_STARTS, ends = STERNA_ATTR_ENDS, steps = STERNA_ATTR_STEPS,
    exclusive = STERNA_ATTR_EXCLUSIVE, reverse = STERNA_ATTR_REVERSE, batch_dims = STERNA_ATTR_BATCH_DIMS,
    clamp_indices = STERNA_ATTR_CLAMP_INDICES, reduction = STERNA_ATTR_REDUCTION, k = STERNA_ATTR_K,
    largest = STERNA_ATTR_LARGEST, select_last_index = STERNA_ATTR_SELECT_LAST_INDEX,
};

enum class fpmath_mode : int {
    strict = STERNA_FPMATH_MODE_STRICT, bf16 = STERNA_FPMATH_MODE_BF16, f16 = STERNA_FPMATH_MODE_F16,
    any = STERNA_FPMATH_MODE_ANY, tf32 = STERNA_FPMATH_MODE_TF32,
};

enum class partition_policy : int {
    fusion = STERNA_PARTITION_POLICY_FUSION, debug = STERNA_PARTITION_POLICY_DEBUG,
};

enum class engine_kind : int {
    any = STERNA_ENGINE_KIND_ANY, cpu = STERNA_ENGINE_KIND_CPU, gpu = STERNA_ENGINE_KIND_GPU,
};

enum class stream_flags : unsigned {
    in_order = STERNA_STREAM_FLAG_IN_ORDER, out_of_order = STERNA_STREAM_FLAG_OUT_OF_ORDER,
    profiling = STERNA_STREAM_FLAG_PROFILING,
};

enum class level : int {
    portable = STERNA_LEVEL_PORTABLE, avx2 = STERNA_LEVEL_AVX2, avx512 = STERNA_LEVEL_AVX512,
    neon = STERNA_LEVEL_NEON,
};

enum class accuracy : int {
    exact = STERNA_ACCURACY_EXACT, ordered = STERNA_ACCURACY_ORDERED, bounded = STERNA_ACCURACY_BOUNDED,
};

enum class phase_kind : int {
    map = STERNA_PHASE_KIND_MAP, rows = STERNA_PHASE_KIND_ROWS, pack = STERNA_PHASE_KIND_PACK,
    gemm = STERNA_PHASE_KIND_GEMM, attention = STERNA_PHASE_KIND_ATTENTION,
    classify = STERNA_PHASE_KIND_CLASSIFY, attention_backward = STERNA_PHASE_KIND_ATTENTION_BACKWARD,
    lookup = STERNA_PHASE_KIND_LOOKUP, top_k = STERNA_PHASE_KIND_TOP_K, pool = STERNA_PHASE_KIND_POOL,
};

enum class fast_form : int {
    attention = STERNA_FAST_FORM_ATTENTION, decode = STERNA_FAST_FORM_DECODE,
    attention_backward = STERNA_FAST_FORM_ATTENTION_BACKWARD,
    integer_attention = STERNA_FAST_FORM_INTEGER_ATTENTION,
    integer_product = STERNA_FAST_FORM_INTEGER_PRODUCT, stored_operand = STERNA_FAST_FORM_STORED_OPERAND,
    stored_cache = STERNA_FAST_FORM_STORED_CACHE, registers = STERNA_FAST_FORM_REGISTERS,
    paged_cache = STERNA_FAST_FORM_PAGED_CACHE, ragged = STERNA_FAST_FORM_RAGGED,
};

enum class fallback_reason : int {
    other_ops = STERNA_FALLBACK_REASON_OTHER_OPS, bias_of_product = STERNA_FALLBACK_REASON_BIAS_OF_PRODUCT,
    softmax_axis = STERNA_FALLBACK_REASON_SOFTMAX_AXIS,
    shape_of_scores = STERNA_FALLBACK_REASON_SHAPE_OF_SCORES,
    shape_of_result = STERNA_FALLBACK_REASON_SHAPE_OF_RESULT,
    transposed_weights = STERNA_FALLBACK_REASON_TRANSPOSED_WEIGHTS,
    operand_form = STERNA_FALLBACK_REASON_OPERAND_FORM,
    computed_weights = STERNA_FALLBACK_REASON_COMPUTED_WEIGHTS,
    computed_logits = STERNA_FALLBACK_REASON_COMPUTED_LOGITS, inner_uses = STERNA_FALLBACK_REASON_INNER_USES,
    several_products = STERNA_FALLBACK_REASON_SEVERAL_PRODUCTS,
    several_gradients = STERNA_FALLBACK_REASON_SEVERAL_GRADIENTS,
    no_elements = STERNA_FALLBACK_REASON_NO_ELEMENTS,
    strided_elements = STERNA_FALLBACK_REASON_STRIDED_ELEMENTS,
    half_bytes = STERNA_FALLBACK_REASON_HALF_BYTES, no_strides = STERNA_FALLBACK_REASON_NO_STRIDES,
    element_type = STERNA_FALLBACK_REASON_ELEMENT_TYPE, scale_groups = STERNA_FALLBACK_REASON_SCALE_GROUPS,
    too_many_scales = STERNA_FALLBACK_REASON_TOO_MANY_SCALES,
    order_of_sums = STERNA_FALLBACK_REASON_ORDER_OF_SUMS,
    several_scales = STERNA_FALLBACK_REASON_SEVERAL_SCALES, scale_axis = STERNA_FALLBACK_REASON_SCALE_AXIS,
    scale_range = STERNA_FALLBACK_REASON_SCALE_RANGE, sum_overflow = STERNA_FALLBACK_REASON_SUM_OVERFLOW,
    operand_not_quantized = STERNA_FALLBACK_REASON_OPERAND_NOT_QUANTIZED,
    rounding_of_weights = STERNA_FALLBACK_REASON_ROUNDING_OF_WEIGHTS,
    too_many_keys = STERNA_FALLBACK_REASON_TOO_MANY_KEYS, cpu_level = STERNA_FALLBACK_REASON_CPU_LEVEL,
    odd_length = STERNA_FALLBACK_REASON_ODD_LENGTH,
    converted_weights = STERNA_FALLBACK_REASON_CONVERTED_WEIGHTS,
    computed_scales = STERNA_FALLBACK_REASON_COMPUTED_SCALES,
    other_masks = STERNA_FALLBACK_REASON_OTHER_MASKS,
};

enum class cpu_isa : int {
    default_ = STERNA_CPU_ISA_DEFAULT, sse41 = STERNA_CPU_ISA_SSE41, avx = STERNA_CPU_ISA_AVX,
    avx2 = STERNA_CPU_ISA_AVX2, avx2_vnni = STERNA_CPU_ISA_AVX2_VNNI,
    avx2_vnni_2 = STERNA_CPU_ISA_AVX2_VNNI_2, avx512_core = STERNA_CPU_ISA_AVX512_CORE,
    avx512_core_vnni = STERNA_CPU_ISA_AVX512_CORE_VNNI, avx512_core_bf16 = STERNA_CPU_ISA_AVX512_CORE_BF16,
    avx512_core_fp16 = STERNA_CPU_ISA_AVX512_CORE_FP16, avx512_core_amx = STERNA_CPU_ISA_AVX512_CORE_AMX,
    avx512_core_amx_fp16 = STERNA_CPU_ISA_AVX512_CORE_AMX_FP16,
};

enum class dump_mode : int {
    none = STERNA_DUMP_MODE_NONE, subgraph = STERNA_DUMP_MODE_SUBGRAPH, graph = STERNA_DUMP_MODE_GRAPH,
};

enum class causal : int {
    none = STERNA_CAUSAL_NONE, top_left = STERNA_CAUSAL_TOP_LEFT, bottom_right = STERNA_CAUSAL_BOTTOM_RIGHT,
    offset = STERNA_CAUSAL_OFFSET,
};

enum class mask_true : int {
    keeps = STERNA_MASK_TRUE_KEEPS, masks = STERNA_MASK_TRUE_MASKS,
};

// The end of what the test writes.

inline stream_flags operator|(stream_flags a, stream_flags b) {
    return static_cast<stream_flags>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

inline dump_mode operator|(dump_mode a, dump_mode b) {
    return static_cast<dump_mode>(static_cast<int>(a) | static_cast<int>(b));
}

// A dim or a stride that is not known.
inline constexpr std::int64_t unknown_dim = STERNA_UNKNOWN_DIM;
inline constexpr std::size_t max_ndims = STERNA_MAX_NDIMS;

inline const char *name(status value) { return sterna_status_string(static_cast<int>(value)); }
// The names below are null for a number that stands for nothing.
inline const char *name(data_type value) { return sterna_data_type_string(static_cast<int>(value)); }
inline const char *name(op_kind value) { return sterna_op_kind_string(static_cast<int>(value)); }
inline const char *name(level value) { return sterna_level_string(static_cast<int>(value)); }
inline const char *name(accuracy value) { return sterna_accuracy_string(static_cast<int>(value)); }
inline const char *name(phase_kind value) { return sterna_phase_kind_string(static_cast<int>(value)); }
inline const char *name(fast_form value) { return sterna_fast_form_string(static_cast<int>(value)); }
inline const char *name(fallback_reason value) { return sterna_fallback_reason_string(static_cast<int>(value)); }

// A call that failed: `what()` is the sentence that names the op, the port and the values that clash.
class error : public std::runtime_error {
public:
    error(sterna::status status, const std::string &message) : std::runtime_error(message), status_(status) {}

    sterna::status status() const noexcept { return status_; }

private:
    sterna::status status_;
};

// Values in a row that someone else owns: what std::span is in C++20. A view of constant values is also made of a list
// in braces, for the call that it is written in.
template <typename T>
class view {
public:
    using value_type = std::remove_const_t<T>;

    constexpr view() noexcept = default;
    constexpr view(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <std::size_t N>
    constexpr view(T (&array)[N]) noexcept : data_(array), size_(N) {}
    template <typename U = T, typename = std::enable_if_t<std::is_const_v<U>>>
    constexpr view(std::initializer_list<value_type> list) noexcept : view(list.begin(), list.size()) {}
    // Of anything with `data()` and `size()`.
    template <typename C,
            typename = std::enable_if_t<std::is_convertible_v<
                    std::remove_pointer_t<decltype(std::declval<C &>().data())> (*)[], T (*)[]>>,
            typename = decltype(std::declval<C &>().size())>
    constexpr view(C &&values) noexcept : data_(values.data()), size_(values.size()) {}

    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](std::size_t i) const { return data_[i]; }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

namespace detail {

inline void check(sterna_status_t status) {
    if (status != STERNA_STATUS_SUCCESS) throw error(static_cast<sterna::status>(status), sterna_last_error_message());
}

// The value that a call writes to its last argument.
template <typename Out, typename Call>
Out read(Call &&call) {
    Out out {};
    check(call(&out));
    return out;
}

// Text that the caller frees.
template <typename Call>
std::optional<std::string> read_text(Call &&call) {
    char *text = read<char *>(call);
    if (!text) return std::nullopt;
    const std::unique_ptr<char, sterna_status_t (*)(char *)> owner(text, sterna_string_destroy);
    return std::string(text);
}

// A handle of the C interface, owned.
template <typename T, sterna_status_t (*Destroy)(T *)>
class owner {
public:
    explicit owner(T *handle) noexcept : handle_(handle) {}

    T *get() const noexcept { return handle_.get(); }
    // Gives the handle up; whoever takes it destroys it.
    T *release() noexcept { return handle_.release(); }

private:
    struct destroy {
        void operator()(T *handle) const noexcept { Destroy(handle); }
    };
    std::unique_ptr<T, destroy> handle_;
};

} // namespace detail

// Settings of the whole process.

inline const sterna_version_t &version() { return *sterna_version(); }
inline std::string_view version_string() { return sterna_version_string(); }

inline std::size_t size_of(data_type type) {
    return detail::read<std::size_t>([&](auto out) { return sterna_data_type_get_size(static_cast<int>(type), out); });
}

inline void set_verbose(int level) { detail::check(sterna_verbose_set(level)); }
inline void set_dump_mode(dump_mode mode) { detail::check(sterna_dump_mode_set(static_cast<int>(mode))); }

inline cpu_isa effective_cpu_isa() { return static_cast<cpu_isa>(sterna_cpu_isa_get_effective()); }
inline void set_max_cpu_isa(cpu_isa isa) { detail::check(sterna_cpu_isa_set_max(static_cast<int>(isa))); }

inline fpmath_mode default_fpmath_mode() {
    return static_cast<fpmath_mode>(detail::read<sterna_fpmath_mode_t>(sterna_fpmath_mode_get_default));
}
inline void set_default_fpmath_mode(fpmath_mode mode) {
    detail::check(sterna_fpmath_mode_set_default(static_cast<int>(mode)));
}

inline int compiled_partition_cache_capacity() {
    return detail::read<int>(sterna_compiled_partition_cache_get_capacity);
}
inline void set_compiled_partition_cache_capacity(int capacity) {
    detail::check(sterna_compiled_partition_cache_set_capacity(capacity));
}

inline bool constant_tensor_cache() { return detail::read<int>(sterna_constant_tensor_cache_get) != 0; }
inline void set_constant_tensor_cache(bool flag) { detail::check(sterna_constant_tensor_cache_set(flag)); }
inline std::size_t constant_tensor_cache_capacity(engine_kind kind = engine_kind::cpu) {
    return detail::read<std::size_t>(
            [&](auto out) { return sterna_constant_tensor_cache_get_capacity(static_cast<int>(kind), out); });
}
inline void set_constant_tensor_cache_capacity(std::size_t mebibytes, engine_kind kind = engine_kind::cpu) {
    detail::check(sterna_constant_tensor_cache_set_capacity(static_cast<int>(kind), mebibytes));
}

class allocator : public detail::owner<sterna_allocator_t, sterna_allocator_destroy> {
public:
    // The memory of the system.
    allocator() : allocator(nullptr, nullptr) {}
    // The functions must not throw.
    allocator(sterna_allocator_malloc_t malloc, sterna_allocator_free_t free)
        : owner(detail::read<sterna_allocator_t *>(
                [&](auto out) { return sterna_allocator_create(out, malloc, free); })) {}
};

// A phase that has run; see sterna_phase_profile_t. The ops are those of the partition.
struct phase_profile {
    view<const sterna_profiled_op_t> ops;
    std::size_t index, phase_num;
    phase_kind kind;
    std::size_t tasks, threads, bytes, flops;
    std::chrono::nanoseconds duration;
};

// An execution that has ended; see sterna_execution_profile_t.
struct execution_profile {
    view<const sterna_profiled_op_t> ops;
    std::size_t bytes, flops;
    std::chrono::nanoseconds duration;
};

// The base of a program's class that is told what ran, and how long. Executions on several threads call at once. The
// object must live until the last execution of the engines made with it has ended. What it is told is valid during the
// call.
class profiler {
public:
    profiler() = default;
    profiler(const profiler &) = delete;
    profiler &operator=(const profiler &) = delete;
    virtual ~profiler() = default;

    virtual void phase(const phase_profile &) noexcept {}
    virtual void execution(const execution_profile &) noexcept {}

private:
    friend class engine_options;

    static std::chrono::nanoseconds duration(std::uint64_t nanoseconds) noexcept {
        return std::chrono::nanoseconds(static_cast<std::chrono::nanoseconds::rep>(nanoseconds));
    }
    sterna_profiler_t get() noexcept {
        sterna_profiler_t out {};
        out.phase = [](void *self, const sterna_phase_profile_t *told) {
            static_cast<profiler *>(self)->phase({{told->ops, told->op_num}, told->index, told->phase_num,
                    static_cast<phase_kind>(told->kind), told->tasks, told->threads, told->bytes, told->flops,
                    duration(told->nanoseconds)});
        };
        out.execution = [](void *self, const sterna_execution_profile_t *told) {
            static_cast<profiler *>(self)->execution(
                    {{told->ops, told->op_num}, told->bytes, told->flops, duration(told->nanoseconds)});
        };
        out.user_data = this;
        return out;
    }
};

// An engine that something else owns: an `engine`, or the stream or tensor that answered with it.
class engine_ref {
public:
    explicit engine_ref(sterna_engine_t *handle) noexcept : handle_(handle) {}

    sterna_engine_t *get() const noexcept { return handle_; }
    engine_kind kind() const {
        return static_cast<engine_kind>(detail::read<sterna_engine_kind_t>(
                [&](auto out) { return sterna_engine_get_kind(handle_, out); }));
    }
    std::size_t threads() const {
        return detail::read<std::size_t>([&](auto out) { return sterna_engine_get_threads(handle_, out); });
    }
    sterna::level level() const {
        return static_cast<sterna::level>(
                detail::read<sterna_level_t>([&](auto out) { return sterna_engine_get_level(handle_, out); }));
    }

    friend bool operator==(engine_ref a, engine_ref b) noexcept { return a.handle_ == b.handle_; }
    friend bool operator!=(engine_ref a, engine_ref b) noexcept { return a.handle_ != b.handle_; }

private:
    sterna_engine_t *handle_;
};

// The options of an engine, one call each. The allocator and the profiler must live until the engine is made.
class engine_options {
public:
    engine_options() noexcept { options_.struct_size = sizeof options_; }
    engine_options(const engine_options &) = delete;
    engine_options &operator=(const engine_options &) = delete;

    // The source of the memory of tensors and of scratch memory.
    engine_options &allocator(const sterna::allocator &memory) noexcept {
        options_.allocator = memory.get();
        return *this;
    }
    // The object that is told of every phase and execution; it must live as long as anything that was made with the engine.
    engine_options &profiler(sterna::profiler &told) noexcept {
        profiler_ = told.get();
        options_.profiler = &profiler_;
        return *this;
    }
    // The most threads of an execution, the caller's among them; 0 for a thread for each hardware thread.
    engine_options &threads(std::size_t most) noexcept {
        options_.threads = most;
        return *this;
    }
    // True lets workers sleep at once after work, rather than stay awake for some microseconds.
    engine_options &sleep_at_once(bool is) noexcept {
        options_.sleep_at_once = is;
        return *this;
    }

    const sterna_engine_options_t *get() const noexcept { return &options_; }

private:
    sterna_engine_options_t options_ {};
    sterna_profiler_t profiler_ {};
};

class engine : public detail::owner<sterna_engine_t, sterna_engine_destroy> {
public:
    explicit engine(engine_kind kind = engine_kind::cpu, std::size_t index = 0)
        : owner(detail::read<sterna_engine_t *>(
                [&](auto out) { return sterna_engine_create(out, static_cast<int>(kind), index); })) {}
    explicit engine(const engine_options &options)
        : owner(detail::read<sterna_engine_t *>(
                [&](auto out) { return sterna_engine_create_with_options(out, options.get()); })) {}

    static std::size_t count(engine_kind kind) noexcept { return sterna_engine_get_count(static_cast<int>(kind)); }

    operator engine_ref() const noexcept { return engine_ref(get()); }
    engine_kind kind() const { return engine_ref(*this).kind(); }
    std::size_t threads() const { return engine_ref(*this).threads(); }
    sterna::level level() const { return engine_ref(*this).level(); }
};

class stream : public detail::owner<sterna_stream_t, sterna_stream_destroy> {
public:
    explicit stream(engine_ref engine, stream_flags flags = stream_flags::in_order)
        : owner(detail::read<sterna_stream_t *>([&](auto out) {
              return sterna_stream_create(out, engine.get(), static_cast<unsigned>(flags));
          })) {}

    engine_ref engine() const {
        return engine_ref(
                detail::read<sterna_engine_t *>([&](auto out) { return sterna_stream_get_engine(get(), out); }));
    }
    void wait() const { detail::check(sterna_stream_wait(get())); }
};

// The description of a tensor: its id, its elements and its layout in memory. A plain value.
class logical_tensor {
public:
    explicit logical_tensor(const sterna_logical_tensor_t &value) noexcept : value_(value) {}
    // A tensor of given dims; dense and row-major, unless another layout is given. No dims are a scalar.
    logical_tensor(std::size_t id, data_type type, view<const std::int64_t> dims,
            layout_type layout = layout_type::strided, property prop = property::undef) {
        detail::check(sterna_logical_tensor_init_with_dims(&value_, id, static_cast<int>(type), rank(dims),
                dims.data(), static_cast<int>(layout), static_cast<int>(prop)));
    }

    // A tensor of given strides, which count elements.
    static logical_tensor strided(std::size_t id, data_type type, view<const std::int64_t> dims,
            view<const std::int64_t> strides, property prop = property::undef) {
        if (dims.size() != strides.size()) throw error(status::invalid_arguments, "there is one stride for each dim");
        sterna_logical_tensor_t value;
        detail::check(sterna_logical_tensor_init_with_strides(&value, id, static_cast<int>(type), rank(dims),
                dims.data(), strides.data(), static_cast<int>(prop)));
        return logical_tensor(value);
    }
    // A tensor of which the type and at most the rank are known.
    static logical_tensor unknown(std::size_t id, data_type type, int ndims = -1,
            layout_type layout = layout_type::any, property prop = property::undef) {
        sterna_logical_tensor_t value;
        detail::check(sterna_logical_tensor_init(&value, id, static_cast<int>(type), ndims, static_cast<int>(layout),
                static_cast<int>(prop)));
        return logical_tensor(value);
    }
    // A scalar whose value goes along with each execution: of type s32, s64 or f32.
    static logical_tensor host_scalar(std::size_t id, data_type type) {
        return logical_tensor(id, type, {}, layout_type::strided, property::host_scalar);
    }

    const sterna_logical_tensor_t *get() const noexcept { return &value_; }
    std::size_t id() const noexcept { return value_.id; }
    data_type type() const noexcept { return static_cast<data_type>(value_.data_type); }
    layout_type layout() const noexcept { return static_cast<layout_type>(value_.layout_type); }
    property prop() const noexcept { return static_cast<property>(value_.property); }
    // -1 where it is unknown.
    int ndims() const noexcept { return value_.ndims; }
    // Empty where the rank is unknown.
    view<const std::int64_t> dims() const noexcept { return {value_.dims, known_rank()}; }
    // Empty unless the layout is strided.
    view<const std::int64_t> strides() const noexcept {
        return {value_.layout.strides, layout() == layout_type::strided ? known_rank() : 0};
    }
    std::size_t memory_size() const {
        return detail::read<std::size_t>([&](auto out) { return sterna_logical_tensor_get_mem_size(&value_, out); });
    }

    friend bool operator==(const logical_tensor &a, const logical_tensor &b) {
        return detail::read<std::uint8_t>(
                       [&](auto out) { return sterna_logical_tensor_is_equal(&a.value_, &b.value_, out); })
                != 0;
    }
    friend bool operator!=(const logical_tensor &a, const logical_tensor &b) { return !(a == b); }

private:
    static std::int32_t rank(view<const std::int64_t> dims) noexcept {
        return dims.size() > max_ndims ? STERNA_MAX_NDIMS + 1 : static_cast<std::int32_t>(dims.size());
    }
    std::size_t known_rank() const noexcept { return value_.ndims < 0 ? 0 : static_cast<std::size_t>(value_.ndims); }

    sterna_logical_tensor_t value_;
};

namespace detail {

inline std::vector<const sterna_logical_tensor_t *> addresses(view<const logical_tensor> list) {
    std::vector<const sterna_logical_tensor_t *> out;
    for (const auto &one : list) out.push_back(one.get());
    return out;
}

} // namespace detail

// A description together with memory.
class tensor : public detail::owner<sterna_tensor_t, sterna_tensor_destroy> {
public:
    // On memory that the tensor owns, from the allocator of the engine.
    tensor(const logical_tensor &desc, engine_ref engine) : tensor(desc, engine, STERNA_MEMORY_ALLOCATE) {}
    // On memory of the caller's, which has to be large enough.
    tensor(const logical_tensor &desc, engine_ref engine, void *memory)
        : owner(detail::read<sterna_tensor_t *>(
                [&](auto out) { return sterna_tensor_create(out, desc.get(), engine.get(), memory); })) {}
    // On values of the caller's: elements of the size of the tensor's, at least `memory_size()` bytes of them. A tensor
    // on constant values serves as an input alone.
    template <typename T>
    tensor(const logical_tensor &desc, engine_ref engine, view<T> values)
        : owner(create(desc, engine, values.data(), values.size())) {}
    template <typename C, typename = decltype(std::declval<C &>().data()),
            typename = decltype(std::declval<C &>().size())>
    tensor(const logical_tensor &desc, engine_ref engine, C &values)
        : owner(create(desc, engine, values.data(), values.size())) {}
    template <typename T, std::size_t N>
    tensor(const logical_tensor &desc, engine_ref engine, T (&values)[N]) : owner(create(desc, engine, values, N)) {}
    // On memory that nobody may write to: an input.
    static tensor on_constant(const logical_tensor &desc, engine_ref engine, const void *memory) {
        return tensor(detail::read<sterna_tensor_t *>(
                [&](auto out) { return sterna_tensor_create_const(out, desc.get(), engine.get(), memory); }));
    }
    // A host scalar; the value is copied.
    template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
    static tensor scalar(const logical_tensor &desc, T value) {
        if (size_of(desc.type()) != sizeof(T)) throw error(status::invalid_arguments, "the value has another size");
        return tensor(detail::read<sterna_tensor_t *>(
                [&](auto out) { return sterna_tensor_create_scalar(out, desc.get(), &value); }));
    }

    void *data() const {
        return detail::read<void *>([&](auto out) { return sterna_tensor_get_data_handle(get(), out); });
    }
    void set_data(void *memory) { detail::check(sterna_tensor_set_data_handle(get(), memory)); }
    // Nothing for a host scalar.
    std::optional<engine_ref> engine() const {
        auto *handle = detail::read<sterna_engine_t *>([&](auto out) { return sterna_tensor_get_engine(get(), out); });
        return handle ? std::optional(engine_ref(handle)) : std::nullopt;
    }
    logical_tensor desc() const {
        return logical_tensor(detail::read<sterna_logical_tensor_t>(
                [&](auto out) { return sterna_tensor_get_logical_tensor(get(), out); }));
    }

private:
    friend class session;
    explicit tensor(sterna_tensor_t *handle) noexcept : owner(handle) {}

    template <typename T>
    static sterna_tensor_t *create(const logical_tensor &desc, engine_ref engine, T *values, std::size_t count) {
        check(desc, count, sizeof(T));
        return detail::read<sterna_tensor_t *>([&](auto out) {
            if constexpr (std::is_const_v<T>)
                return sterna_tensor_create_const(out, desc.get(), engine.get(), values);
            else
                return sterna_tensor_create(out, desc.get(), engine.get(), values);
        });
    }
    static void check(const logical_tensor &desc, std::size_t count, std::size_t size) {
        const std::size_t wanted = size_of(desc.type()), needed = desc.memory_size();
        if (size != wanted)
            throw error(status::invalid_arguments,
                    "tensor " + std::to_string(desc.id()) + ": the values given have " + std::to_string(size)
                            + " bytes each, not " + std::to_string(wanted));
        if (count < needed / size + (needed % size != 0))
            throw error(status::invalid_arguments,
                    "tensor " + std::to_string(desc.id()) + ": " + std::to_string(count) + " values are fewer than its "
                            + std::to_string(needed) + " bytes");
    }
};

// A tensor that something else owns.
class tensor_ref {
public:
    tensor_ref(const tensor &owner) noexcept : handle_(owner.get()) {}

    const sterna_tensor_t *get() const noexcept { return handle_; }

private:
    const sterna_tensor_t *handle_;
};

// Tensors lent to a call: `{a, b}`, or anything that is walked through and holds tensors.
class tensors {
public:
    tensors(std::initializer_list<tensor_ref> list) { take(list); }
    template <typename C,
            typename = std::enable_if_t<std::is_convertible_v<decltype(*std::begin(std::declval<const C &>())),
                    tensor_ref>>>
    tensors(const C &list) {
        take(list);
    }

    const sterna_tensor_t *const *data() const noexcept { return handles_.data(); }
    std::size_t size() const noexcept { return handles_.size(); }

private:
    template <typename C>
    void take(const C &list) {
        for (const tensor_ref one : list) handles_.push_back(one.get());
    }

    std::vector<const sterna_tensor_t *> handles_;
};

class op : public detail::owner<sterna_op_t, sterna_op_destroy> {
public:
    op(std::size_t id, op_kind kind, const std::string &name = "")
        : owner(detail::read<sterna_op_t *>(
                [&](auto out) { return sterna_op_create(out, id, static_cast<int>(kind), name.c_str()); })) {}
    op(std::size_t id, op_kind kind, view<const logical_tensor> inputs, view<const logical_tensor> outputs,
            const std::string &name = "")
        : op(id, kind, name) {
        for (const auto &one : inputs) input(one);
        for (const auto &one : outputs) output(one);
    }

    op &input(const logical_tensor &desc) {
        detail::check(sterna_op_add_input(get(), desc.get()));
        return *this;
    }
    op &output(const logical_tensor &desc) {
        detail::check(sterna_op_add_output(get(), desc.get()));
        return *this;
    }

    // A number, a truth value, a word, or a list of numbers.
    template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
    op &attr(op_attr attr, T value) {
        if constexpr (std::is_same_v<T, bool>) {
            const std::uint8_t truth = value;
            detail::check(sterna_op_set_attr_bool(get(), static_cast<int>(attr), &truth, 1));
        } else if constexpr (std::is_floating_point_v<T>) {
            const float real = static_cast<float>(value);
            detail::check(sterna_op_set_attr_f32(get(), static_cast<int>(attr), &real, 1));
        } else {
            const std::int64_t whole = static_cast<std::int64_t>(value);
            detail::check(sterna_op_set_attr_s64(get(), static_cast<int>(attr), &whole, 1));
        }
        return *this;
    }
    op &attr(op_attr attr, const std::string &word) {
        detail::check(sterna_op_set_attr_str(get(), static_cast<int>(attr), word.c_str(), word.size()));
        return *this;
    }
    op &attr(op_attr attr, const char *word) { return this->attr(attr, std::string(word)); }
    op &attr(op_attr attr, view<const std::int64_t> list) {
        detail::check(sterna_op_set_attr_s64(get(), static_cast<int>(attr), list.data(), list.size()));
        return *this;
    }
    template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
    op &attr(op_attr attr, std::initializer_list<T> list) {
        using number = std::conditional_t<std::is_floating_point_v<T>, float, std::int64_t>;
        const std::vector<number> numbers(list.begin(), list.end());
        return this->attr(attr, view<const number>(numbers));
    }
    op &attr(op_attr attr, view<const float> list) {
        detail::check(sterna_op_set_attr_f32(get(), static_cast<int>(attr), list.data(), list.size()));
        return *this;
    }

    std::size_t id() const {
        return detail::read<std::size_t>([&](auto out) { return sterna_op_get_id(get(), out); });
    }
    op_kind kind() const {
        return static_cast<op_kind>(
                detail::read<sterna_op_kind_t>([&](auto out) { return sterna_op_get_kind(get(), out); }));
    }
};

// Masked attention for graph::add: the options of sterna_graph_add_attention, one call each.
class attention {
public:
    // Of values of a builder: `attention(q.desc(), k.desc(), v.desc())`.
    attention(const logical_tensor &q, const logical_tensor &k, const logical_tensor &v)
        : attention(q, k, v, q, 0, 0) {}
    attention(const logical_tensor &q, const logical_tensor &k, const logical_tensor &v, const logical_tensor &dst,
            std::size_t first_op_id, std::size_t first_tensor_id)
        : tensors_ {q, k, v, dst} {
        options_.struct_size = sizeof options_;
        options_.first_op_id = first_op_id;
        options_.first_tensor_id = first_tensor_id;
    }

    attention &scale(float factor) { return set(scale_, std::optional<float>(factor)); }
    attention &softcap(float cap) { return set(options_.softcap, cap); }
    attention &window(std::int64_t positions) { return set(options_.window, positions); }
    attention &groups(std::int64_t heads) { return set(options_.groups, heads); }
    attention &k_transposed(bool is) { return set(options_.k_transposed, static_cast<int>(is)); }
    // If true, a query all of whose keys are left out gets NaN instead of 0; without a key to leave out it gets 0.
    attention &nan_without_keys(bool is) { return set(options_.nan_without_keys, static_cast<int>(is)); }
    attention &score_type(data_type type) { return set(options_.score_type, static_cast<int>(type)); }
    attention &bias(const logical_tensor &numbers) { return set(bias_, std::optional<logical_tensor>(numbers)); }
    // A score without a key for each query; the numbers broadcast to [.., queries, 1].
    attention &sinks(const logical_tensor &numbers) { return set(sinks_, std::optional<logical_tensor>(numbers)); }
    // Sequences that follow each other: the number of queries, and of keys, in front of each one, and of all; s32.
    attention &packed(const logical_tensor &cu_seqlens_q, const logical_tensor &cu_seqlens_kv) {
        cu_seqlens_q_ = cu_seqlens_q;
        return set(cu_seqlens_kv_, std::optional<logical_tensor>(cu_seqlens_kv));
    }
    // The same along the queries alone, whose keys lie in pages.
    attention &packed_queries(const logical_tensor &cu_seqlens_q) {
        cu_seqlens_kv_.reset();
        return set(cu_seqlens_q_, std::optional<logical_tensor>(cu_seqlens_q));
    }
    // Keys and values in the pages of a cache: the pages of each sequence, s32 or s64 of [batch, pages of each
    // sequence], and the number of its keys, s32 of [batch]. The operands k and v are the whole cache.
    attention &paged(const logical_tensor &block_table, const logical_tensor &lengths) {
        block_table_ = block_table;
        return set(lengths_, std::optional<logical_tensor>(lengths));
    }
    // Keys that are s8, u8, s4 or u4: scales, and zero points, have the dims of k and a number of groups in place
    // of d. Of keys in pages they lie in pages of their own.
    attention &quantized_keys(const logical_tensor &scales) {
        k_zero_points_.reset();
        return set(k_scales_, std::optional<logical_tensor>(scales));
    }
    attention &quantized_keys(const logical_tensor &scales, const logical_tensor &zero_points) {
        k_scales_ = scales;
        return set(k_zero_points_, std::optional<logical_tensor>(zero_points));
    }
    // The same of values.
    attention &quantized_values(const logical_tensor &scales) {
        v_zero_points_.reset();
        return set(v_scales_, std::optional<logical_tensor>(scales));
    }
    attention &quantized_values(const logical_tensor &scales, const logical_tensor &zero_points) {
        v_scales_ = scales;
        return set(v_zero_points_, std::optional<logical_tensor>(zero_points));
    }
    // The slopes of ALiBi, f32; they broadcast to the scores.
    attention &alibi(const logical_tensor &slopes) { return set(alibi_, std::optional<logical_tensor>(slopes)); }
    attention &stats(const logical_tensor &to) { return set(stats_, std::optional<logical_tensor>(to)); }
    attention &mask(const logical_tensor &booleans, mask_true says = mask_true::keeps) {
        mask_ = booleans;
        return set(options_.mask_true, static_cast<int>(says));
    }
    attention &causal(sterna::causal diagonal) { return set(options_.causal, static_cast<int>(diagonal)); }
    // Query i sees key j if j <= i + offset.
    attention &causal(const logical_tensor &offset) {
        offset_ = offset;
        return causal(sterna::causal::offset);
    }

private:
    friend class graph;
    friend class graph_builder;
    friend class attention_backward;

    template <typename T, typename U>
    attention &set(T &field, const U &value) {
        field = value;
        return *this;
    }
    // The options for a call; they hold addresses of this object.
    sterna_attention_options_t options() const {
        const auto at = [](const std::optional<logical_tensor> &one) { return one ? one->get() : nullptr; };
        auto out = options_;
        out.q = tensors_[0].get();
        out.k = tensors_[1].get();
        out.v = tensors_[2].get();
        out.dst = tensors_[3].get();
        out.bias = at(bias_);
        out.sinks = at(sinks_);
        out.cu_seqlens_q = at(cu_seqlens_q_);
        out.cu_seqlens_kv = at(cu_seqlens_kv_);
        out.alibi = at(alibi_);
        out.block_table = at(block_table_);
        out.lengths = at(lengths_);
        out.k_scales = at(k_scales_);
        out.k_zero_points = at(k_zero_points_);
        out.v_scales = at(v_scales_);
        out.v_zero_points = at(v_zero_points_);
        out.mask = at(mask_);
        out.offset = at(offset_);
        out.stats = at(stats_);
        out.scale = scale_ ? &*scale_ : nullptr;
        return out;
    }

    sterna_attention_options_t options_ {};
    logical_tensor tensors_[4];
    std::optional<logical_tensor> bias_, sinks_, cu_seqlens_q_, cu_seqlens_kv_, alibi_, mask_, offset_, stats_;
    std::optional<logical_tensor> block_table_, lengths_, k_scales_, k_zero_points_, v_scales_, v_zero_points_;
    std::optional<float> scale_;
};

// The gradients of masked attention for graph::add: what forward computed, the gradient of its result, and
// those that are wanted.
class attention_backward {
public:
    attention_backward(const attention &forward, const logical_tensor &d_dst) : forward_ {forward}, d_dst_ {d_dst} {}

    attention_backward &d_q(const logical_tensor &to) { return set(d_q_, to); }
    attention_backward &d_k(const logical_tensor &to) { return set(d_k_, to); }
    attention_backward &d_v(const logical_tensor &to) { return set(d_v_, to); }

private:
    friend class graph;

    attention_backward &set(std::optional<logical_tensor> &field, const logical_tensor &to) {
        field = to;
        return *this;
    }
    // The options for a call; they hold addresses of this object, and that of the options of forward.
    sterna_attention_backward_options_t options(const sterna_attention_options_t &forward) const {
        const auto at = [](const std::optional<logical_tensor> &one) { return one ? one->get() : nullptr; };
        sterna_attention_backward_options_t out {};
        out.struct_size = sizeof out;
        out.forward = &forward;
        out.d_dst = d_dst_.get();
        out.d_q = at(d_q_);
        out.d_k = at(d_k_);
        out.d_v = at(d_v_);
        return out;
    }

    attention forward_;
    logical_tensor d_dst_;
    std::optional<logical_tensor> d_q_, d_k_, d_v_;
};

// A part of an execution, which begins when the part before it has ended.
struct phase {
    phase_kind kind;
    // They may run in any order and on any thread.
    std::size_t tasks;
    std::size_t flops;
    // Bytes for each thread.
    std::size_t scratch;
};

// A fast form that a plan did not take, the reason, and the op that would have had the form.
struct fallback {
    fast_form form;
    fallback_reason reason;
    std::size_t op_id;
};

// A partition compiled for concrete tensors, to be executed any number of times.
class compiled_partition : public detail::owner<sterna_compiled_partition_t, sterna_compiled_partition_destroy> {
public:
    // Tensors come in any order; each call returns when the outputs are written.
    void execute(const stream &stream, const tensors &inputs, const tensors &outputs) const {
        detail::check(sterna_compiled_partition_execute(
                get(), stream.get(), inputs.size(), inputs.data(), outputs.size(), outputs.data()));
    }
    void execute(const stream &stream, const tensors &inputs, const tensors &outputs,
            const sterna::tensor &scratchpad) const {
        detail::check(sterna_compiled_partition_execute_with_scratchpad(get(), stream.get(), inputs.size(), inputs.data(),
                outputs.size(), outputs.data(), scratchpad.get()));
    }

    // The same on the stream of a moment.
    void run(const tensors &inputs, const tensors &outputs) const { execute(stream(engine()), inputs, outputs); }

    logical_tensor scratchpad() const {
        return logical_tensor(detail::read<sterna_logical_tensor_t>(
                [&](auto out) { return sterna_compiled_partition_get_scratchpad_logical_tensor(get(), out); }));
    }
    // The tensor of a port as it was compiled, by its id or by the name that the port has in the schema of its op, such
    // as `cond` or `dst`.
    logical_tensor query_logical_tensor(std::size_t id) const {
        return logical_tensor(detail::read<sterna_logical_tensor_t>(
                [&](auto out) { return sterna_compiled_partition_query_logical_tensor(get(), id, out); }));
    }
    logical_tensor query_logical_tensor(const std::string &name) const {
        return logical_tensor(detail::read<sterna_logical_tensor_t>([&](auto out) {
            return sterna_compiled_partition_query_logical_tensor_by_name(get(), name.c_str(), out);
        }));
    }
    // The same by its former name.
    logical_tensor query(std::size_t id) const { return query_logical_tensor(id); }
    // The engine for which it was compiled, which it owns.
    engine_ref engine() const {
        return engine_ref(detail::read<sterna_engine_t *>(
                [&](auto out) { return sterna_compiled_partition_get_engine(get(), out); }));
    }
    // A tensor for a port, by id or name, on that engine: on memory of its own, or on values of the caller's.
    template <typename Port>
    sterna::tensor tensor(const Port &port) const {
        return sterna::tensor(query_logical_tensor(port), engine());
    }
    template <typename Port, typename Values>
    sterna::tensor tensor(const Port &port, Values &&values) const {
        return sterna::tensor(query_logical_tensor(port), engine(), std::forward<Values>(values));
    }
    // The view is good for as long as the compiled partition is.
    view<const sterna_inplace_pair_t> inplace_ports() const {
        std::size_t count = 0;
        const sterna_inplace_pair_t *pairs = nullptr;
        detail::check(sterna_compiled_partition_get_inplace_ports(get(), &count, &pairs));
        return {pairs, count};
    }
    // The costs of an execution.
    std::size_t bytes_moved() const { return number(sterna_compiled_partition_get_bytes_moved); }
    std::size_t flops() const { return number(sterna_compiled_partition_get_flops); }
    std::size_t scratch_per_thread() const { return number(sterna_compiled_partition_get_scratch_per_thread); }
    std::size_t buffer_bytes() const { return number(sterna_compiled_partition_get_buffer_bytes); }
    // The phases of an execution, in the order in which they run.
    std::vector<phase> phases() const {
        std::vector<phase> out(number(sterna_compiled_partition_get_phase_num));
        for (std::size_t i = 0; i < out.size(); i++) {
            out[i].kind = static_cast<phase_kind>(detail::read<sterna_phase_kind_t>(
                    [&](auto kind) { return sterna_compiled_partition_get_phase_kind(get(), i, kind); }));
            detail::check(sterna_compiled_partition_get_phase_tasks(get(), i, &out[i].tasks));
            detail::check(sterna_compiled_partition_get_phase_flops(get(), i, &out[i].flops));
            detail::check(sterna_compiled_partition_get_phase_scratch(get(), i, &out[i].scratch));
        }
        return out;
    }
    // The fast forms that the plan did not take.
    std::vector<fallback> fallbacks() const {
        std::size_t count = 0;
        const sterna_fallback_t *found = nullptr;
        detail::check(sterna_compiled_partition_get_fallbacks(get(), &count, &found));
        std::vector<fallback> out;
        for (std::size_t i = 0; i < count; i++)
            out.push_back({static_cast<fast_form>(found[i].form), static_cast<fallback_reason>(found[i].reason),
                    found[i].op_id});
        return out;
    }
    // The same in words, whose form may change from version to version.
    std::string plan() const {
        return *detail::read_text([&](auto out) { return sterna_compiled_partition_get_plan(get(), out); });
    }
    // Tiles of masked scores, by what an execution with these inputs leaves out.
    sterna_mask_tile_counts_t count_mask_tiles(const tensors &inputs) const {
        return detail::read<sterna_mask_tile_counts_t>([&](auto out) {
            return sterna_compiled_partition_count_mask_tiles(get(), inputs.size(), inputs.data(), out);
        });
    }

private:
    friend class partition;
    using owner::owner;

    template <typename Read>
    std::size_t number(Read read) const {
        return detail::read<std::size_t>([&](auto out) { return read(get(), out); });
    }
};

class partition : public detail::owner<sterna_partition_t, sterna_partition_destroy> {
public:
    // One op without a graph.
    explicit partition(const op &op, sterna::engine_kind kind = sterna::engine_kind::cpu)
        : owner(detail::read<sterna_partition_t *>([&](auto out) {
              return sterna_partition_create_with_op(out, op.get(), static_cast<int>(kind));
          })) {}

    std::size_t id() const {
        return detail::read<std::size_t>([&](auto out) { return sterna_partition_get_id(get(), out); });
    }
    std::vector<std::size_t> ops() const {
        std::vector<std::size_t> ids(
                detail::read<std::size_t>([&](auto out) { return sterna_partition_get_op_num(get(), out); }));
        detail::check(sterna_partition_get_ops(get(), ids.size(), ids.data()));
        return ids;
    }
    std::vector<logical_tensor> inputs() const {
        return ports(sterna_partition_get_input_ports_num, sterna_partition_get_input_ports);
    }
    std::vector<logical_tensor> outputs() const {
        return ports(sterna_partition_get_output_ports_num, sterna_partition_get_output_ports);
    }
    bool is_supported() const {
        return detail::read<std::uint8_t>([&](auto out) { return sterna_partition_is_supported(get(), out); }) != 0;
    }
    // An error where it is not supported.
    sterna::accuracy accuracy() const {
        return static_cast<sterna::accuracy>(detail::read<sterna_accuracy_t>(
                [&](auto out) { return sterna_partition_get_accuracy(get(), out); }));
    }
    // Nothing where it is supported.
    std::optional<std::string> unsupported_reason() const {
        return detail::read_text([&](auto out) { return sterna_partition_get_unsupported_reason(get(), out); });
    }
    sterna::engine_kind engine_kind() const {
        return static_cast<sterna::engine_kind>(detail::read<sterna_engine_kind_t>(
                [&](auto out) { return sterna_partition_get_engine_kind(get(), out); }));
    }

    compiled_partition compile(view<const logical_tensor> inputs, view<const logical_tensor> outputs,
            engine_ref engine) const {
        compiled_partition compiled(detail::read<sterna_compiled_partition_t *>(
                [&](auto out) { return sterna_compiled_partition_create(out, get()); }));
        const auto in = detail::addresses(inputs), out = detail::addresses(outputs);
        detail::check(sterna_partition_compile(
                get(), compiled.get(), in.size(), in.data(), out.size(), out.data(), engine.get()));
        return compiled;
    }
    // For the tensors that the graph describes.
    compiled_partition compile(engine_ref engine) const { return compile(inputs(), outputs(), engine); }

private:
    friend class graph;
    explicit partition(sterna_partition_t *handle) noexcept : owner(handle) {}

    template <typename Count, typename Read>
    std::vector<logical_tensor> ports(Count count, Read read) const {
        std::vector<sterna_logical_tensor_t> values(
                detail::read<std::size_t>([&](auto out) { return count(get(), out); }));
        detail::check(read(get(), values.size(), values.data()));
        return {values.begin(), values.end()};
    }
};

// Ops linked by the ids of the tensors that they mention.
class graph : public detail::owner<sterna_graph_t, sterna_graph_destroy> {
public:
    explicit graph(engine_kind kind = engine_kind::cpu)
        : owner(detail::read<sterna_graph_t *>(
                [&](auto out) { return sterna_graph_create(out, static_cast<int>(kind)); })) {}
    explicit graph(fpmath_mode mode, engine_kind kind = engine_kind::cpu)
        : owner(detail::read<sterna_graph_t *>([&](auto out) {
              return sterna_graph_create_with_fpmath_mode(out, static_cast<int>(kind), static_cast<int>(mode));
          })) {}

    static graph from_json(std::string_view json) {
        return graph(detail::read<sterna_graph_t *>(
                [&](auto out) { return sterna_graph_from_json(out, json.data(), json.size()); }));
    }
    // Notes on the parts that were read in another way than they were written, line by line.
    std::string json_notes() const {
        return *detail::read_text([&](auto out) { return sterna_graph_get_json_notes(get(), out); });
    }
    std::string to_json() const {
        return *detail::read_text([&](auto out) { return sterna_graph_to_json(get(), out, nullptr); });
    }

    struct fpmath {
        fpmath_mode mode;
        bool apply_to_int;
    };
    fpmath get_fpmath_mode() const {
        sterna_fpmath_mode_t mode = 0;
        int apply_to_int = 0;
        detail::check(sterna_graph_get_fpmath_mode(get(), &mode, &apply_to_int));
        return {static_cast<fpmath_mode>(mode), apply_to_int != 0};
    }
    void set_fpmath_mode(fpmath_mode mode, bool apply_to_int = false) {
        detail::check(sterna_graph_set_fpmath_mode(get(), static_cast<int>(mode), apply_to_int));
    }
    // By its name, such as "rms-norm"; for later calls of `partitions` and `explain`.
    void set_rewrite(const std::string &name, bool is_on) {
        detail::check(sterna_graph_set_rewrite(get(), name.c_str(), is_on));
    }

    graph &add(const op &op) {
        detail::check(sterna_graph_add_op(get(), op.get()));
        return *this;
    }
    // How many ids the ops of attention, or of its gradients, and the tensors between them have taken.
    struct attention_ids {
        std::size_t ops, tensors;
    };
    attention_ids add(const attention &attention) {
        const auto options = attention.options();
        attention_ids out {};
        detail::check(sterna_graph_add_attention(get(), &options, &out.ops, &out.tensors));
        return out;
    }
    attention_ids add(const attention_backward &backward) {
        const auto forward = backward.forward_.options();
        const auto options = backward.options(forward);
        attention_ids out {};
        detail::check(sterna_graph_add_attention_backward(get(), &options, &out.ops, &out.tensors));
        return out;
    }
    void finalize() { detail::check(sterna_graph_finalize(get())); }
    bool is_finalized() const {
        return detail::read<std::uint8_t>([&](auto out) { return sterna_graph_is_finalized(get(), out); }) != 0;
    }

    // Cuts the graph afresh.
    std::vector<partition> partitions(partition_policy policy = partition_policy::fusion) {
        detail::check(sterna_graph_filter(get(), static_cast<int>(policy)));
        std::vector<sterna_partition_t *> handles(
                detail::read<std::size_t>([&](auto out) { return sterna_graph_get_partition_num(get(), out); }));
        std::vector<partition> out;
        out.reserve(handles.size());
        detail::check(sterna_graph_get_partitions(get(), handles.size(), handles.data()));
        for (auto *handle : handles) out.push_back(partition(handle));
        return out;
    }
    // Why an op shares a partition with its neighbours or does not, line by line.
    std::string explain(std::size_t op_id) const {
        return *detail::read_text([&](auto out) { return sterna_graph_explain(get(), op_id, out); });
    }

private:
    explicit graph(sterna_graph_t *handle) noexcept : owner(handle) {}
};

namespace detail {

// The data type of elements of a type of C++.
template <typename T>
constexpr data_type type_of() {
    if constexpr (std::is_same_v<T, bool>) return data_type::boolean;
    else if constexpr (std::is_same_v<T, float>) return data_type::f32;
    else if constexpr (std::is_same_v<T, double>) return data_type::f64;
    else {
        static_assert(std::is_integral_v<T> && sizeof(T) <= 8, "name the data type of these values");
        constexpr bool is_signed = std::is_signed_v<T>;
        if constexpr (sizeof(T) == 1) return is_signed ? data_type::s8 : data_type::u8;
        else if constexpr (sizeof(T) == 2) return is_signed ? data_type::s16 : data_type::u16;
        else if constexpr (sizeof(T) == 4) return is_signed ? data_type::s32 : data_type::u32;
        else return is_signed ? data_type::s64 : data_type::u64;
    }
}

// The common part of the views of sterna.h.
class shape {
public:
    shape(view<const std::int64_t> dims, view<const std::int64_t> strides)
        : dims_(dims.begin(), dims.end()), strides_(strides.begin(), strides.end()) {
        if (!strides.empty() && strides.size() != dims.size())
            throw error(status::invalid_arguments, "there is one stride for each dim");
    }

    const std::vector<std::int64_t> &dims() const noexcept { return dims_; }

    template <typename View>
    View fill(View out) const noexcept {
        out.ndims = dims_.size() > max_ndims ? STERNA_MAX_NDIMS + 1 : static_cast<std::int32_t>(dims_.size());
        out.dims = dims_.data();
        out.strides = strides_.empty() ? nullptr : strides_.data();
        return out;
    }
    // Refuses fewer values than the dims and strides reach; other mistakes are the library's to find.
    void check(std::size_t count) const {
        double last = 0, dense = 1;
        for (std::size_t i = dims_.size(); i-- > 0;) {
            if (dims_[i] <= 0) return;
            last += static_cast<double>(dims_[i] - 1) * (strides_.empty() ? dense : static_cast<double>(strides_[i]));
            dense *= static_cast<double>(dims_[i]);
        }
        if (static_cast<double>(count) < last + 1)
            throw error(status::invalid_arguments, std::to_string(count) + " values are fewer than the dims need");
    }

private:
    std::vector<std::int64_t> dims_, strides_;
};

} // namespace detail

// An operand that `select` reads: values of the caller's with dims, and strides if they are not dense and row-major; or
// a number.
class operand {
public:
    template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
    operand(T number) : shape_({}, {}), type_(detail::type_of<T>()), is_number_(true) {
        std::memcpy(number_, &number, sizeof number);
    }
    template <typename C, typename = decltype(std::declval<const C &>().data())>
    operand(const C &values, view<const std::int64_t> dims, view<const std::int64_t> strides = {})
        : operand(detail::type_of<std::decay_t<decltype(*values.data())>>(), values.data(), dims, strides) {
        shape_.check(values.size());
    }
    template <typename T, std::size_t N>
    operand(const T (&values)[N], view<const std::int64_t> dims, view<const std::int64_t> strides = {})
        : operand(detail::type_of<T>(), values, dims, strides) {
        shape_.check(N);
    }
    // Values of a type that C++ has no name for.
    operand(data_type type, const void *values, view<const std::int64_t> dims, view<const std::int64_t> strides = {})
        : shape_(dims, strides), type_(type), values_(values) {}

    sterna_view_t get() const noexcept {
        sterna_view_t out {};
        out.data = is_number_ ? number_ : values_;
        out.data_type = static_cast<int>(type_);
        return shape_.fill(out);
    }

private:
    detail::shape shape_;
    data_type type_;
    const void *values_ = nullptr;
    unsigned char number_[8] = {};
    bool is_number_ = false;
};

// The result that `select_into` writes: memory of the caller's with dims.
class target {
public:
    template <typename C, typename = decltype(std::declval<C &>().data())>
    target(C &values, view<const std::int64_t> dims, view<const std::int64_t> strides = {})
        : target(detail::type_of<std::decay_t<decltype(*values.data())>>(), values.data(), dims, strides) {
        shape_.check(values.size());
    }
    template <typename T, std::size_t N>
    target(T (&values)[N], view<const std::int64_t> dims, view<const std::int64_t> strides = {})
        : target(detail::type_of<T>(), values, dims, strides) {
        shape_.check(N);
    }
    target(data_type type, void *values, view<const std::int64_t> dims, view<const std::int64_t> strides = {})
        : shape_(dims, strides), type_(type), values_(values) {}

    sterna_view_mut_t get() const noexcept {
        sterna_view_mut_t out {};
        out.data = values_;
        out.data_type = static_cast<int>(type_);
        return shape_.fill(out);
    }

private:
    detail::shape shape_;
    data_type type_;
    void *values_;
};

// How `select` broadcasts, and on which engine it runs: on one that the process shares unless one is given.
struct select_options {
    const char *auto_broadcast = nullptr;
    std::int64_t axis = -1;
    std::optional<engine_ref> engine = std::nullopt;
};

namespace detail {

// The operands of a select; bytes are truth values of a condition.
struct operands {
    operands(const operand &cond, const operand &then, const operand &else_)
        : views {cond.get(), then.get(), else_.get()} {
        if (views[0].data_type == STERNA_DATA_TYPE_U8) views[0].data_type = STERNA_DATA_TYPE_BOOLEAN;
    }
    sterna_view_t views[3];
};

} // namespace detail

// The dims of the result of `select`.
inline std::vector<std::int64_t> select_dims(
        const operand &cond, const operand &then, const operand &else_, const select_options &options = {}) {
    std::int32_t ndims = 0;
    std::int64_t dims[max_ndims];
    const detail::operands of(cond, then, else_);
    const auto *views = of.views;
    detail::check(sterna_select_get_dims(
            options.auto_broadcast, options.axis, &views[0], &views[1], &views[2], &ndims, dims));
    return {dims, dims + ndims};
}

// Computes `cond ? then : else_`, with broadcasting, into memory of the caller's. See sterna_select. Conditions are bool,
// or bytes that are true if they are not 0.
inline void select_into(const operand &cond, const operand &then, const operand &else_, const target &dst,
        const select_options &options = {}) {
    const detail::operands of(cond, then, else_);
    const auto *views = of.views;
    const sterna_view_mut_t to = dst.get();
    if (!options.engine && !options.auto_broadcast && options.axis == -1)
        detail::check(sterna_select(&views[0], &views[1], &views[2], &to));
    else
        detail::check(sterna_select_with(options.engine ? options.engine->get() : nullptr, options.auto_broadcast,
                options.axis, &views[0], &views[1], &views[2], &to));
}

// Values with dims, dense and row-major.
template <typename T>
struct array {
    std::vector<T> values;
    std::vector<std::int64_t> dims;
};

// The same as an array of its own: `sterna::select<float>({mask, {3}}, {scores, {2, 3}}, -1.0f)`.
template <typename T>
array<T> select(
        const operand &cond, const operand &then, const operand &else_, const select_options &options = {}) {
    static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no values in a row; use select_into");
    array<T> out;
    out.dims = select_dims(cond, then, else_, options);
    std::size_t count = 1;
    for (const auto dim : out.dims) count *= static_cast<std::size_t>(dim);
    out.values.resize(count);
    select_into(cond, then, else_, target(out.values, out.dims), options);
    return out;
}

// Graphs that run as a whole: built from values, run by a session.

namespace detail {

inline view<const std::int64_t> dims_of(const std::int64_t *dims, std::int32_t ndims) {
    return {dims, static_cast<std::size_t>(ndims)};
}

// Owns what a C function gives back as its `user_data`.
template <typename T>
void drop(void *user_data) {
    delete static_cast<T *>(user_data);
}

} // namespace detail

// The name and the attributes of an op that only the program knows, as its functions get it.
class custom_node_ref {
public:
    explicit custom_node_ref(const sterna_custom_node_t *handle) noexcept : handle_(handle) {}

    std::string op_name() const {
        return *detail::read_text([&](auto out) { return sterna_custom_node_get_op_name(handle_, out); });
    }
    // The attribute of a name; an error if there is none of this type. The views are good as long as the node.
    view<const float> floats(const std::string &name) const {
        const float *values = nullptr;
        std::size_t count = 0;
        detail::check(sterna_custom_node_get_attr_f32(handle_, name.c_str(), &values, &count));
        return {values, count};
    }
    view<const std::int64_t> integers(const std::string &name) const {
        const std::int64_t *values = nullptr;
        std::size_t count = 0;
        detail::check(sterna_custom_node_get_attr_s64(handle_, name.c_str(), &values, &count));
        return {values, count};
    }
    std::string text(const std::string &name) const {
        return *detail::read_text(
                [&](auto out) { return sterna_custom_node_get_attr_str(handle_, name.c_str(), out); });
    }

private:
    const sterna_custom_node_t *handle_;
};

// The same, to be made: `custom_node("my.domain::Scale").attr("factor", 2.0f)`.
class custom_node : public detail::owner<sterna_custom_node_t, sterna_custom_node_destroy> {
public:
    explicit custom_node(const std::string &op_name)
        : owner(detail::read<sterna_custom_node_t *>(
                [&](auto out) { return sterna_custom_node_create(out, op_name.c_str()); })) {}

    operator custom_node_ref() const noexcept { return custom_node_ref(get()); }

    template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
    custom_node &attr(const std::string &name, T value) {
        using number = std::conditional_t<std::is_floating_point_v<T>, float, std::int64_t>;
        const number one = static_cast<number>(value);
        return this->attr(name, view<const number>(&one, 1));
    }
    custom_node &attr(const std::string &name, view<const float> values) {
        detail::check(sterna_custom_node_set_attr_f32(get(), name.c_str(), values.data(), values.size()));
        return *this;
    }
    custom_node &attr(const std::string &name, view<const std::int64_t> values) {
        detail::check(sterna_custom_node_set_attr_s64(get(), name.c_str(), values.data(), values.size()));
        return *this;
    }
    custom_node &attr(const std::string &name, const char *text) {
        detail::check(sterna_custom_node_set_attr_str(get(), name.c_str(), text));
        return *this;
    }
};

// An input or an output of a model: its name, and its tensor as far as it is described.
struct port {
    std::string name;
    logical_tensor tensor;
};

namespace detail {

// Calls what may throw, and writes the sentence of the error.
template <typename Call>
int told(char *message, std::size_t size, Call &&call) noexcept {
    const auto say = [&](const char *text) {
        std::strncpy(message, text, size - 1);
        message[size - 1] = '\0';
        return STERNA_STATUS_RUNTIME_ERROR;
    };
    try {
        call();
        return STERNA_STATUS_SUCCESS;
    } catch (const std::exception &error) {
        return say(error.what());
    } catch (...) {
        return say("it threw what is no std::exception");
    }
}

// Ports for a call.
class port_list {
public:
    explicit port_list(const std::vector<port> &ports) {
        for (const auto &one : ports) names_.push_back(one.name.c_str());
        for (std::size_t i = 0; i < ports.size(); i++) ports_.push_back({&names_[i], 1, *ports[i].tensor.get()});
    }
    port_list(const port_list &) = delete;

    std::size_t size() const noexcept { return ports_.size(); }
    const sterna_model_port_t *data() const noexcept { return ports_.data(); }

private:
    std::vector<const char *> names_;
    std::vector<sterna_model_port_t> ports_;
};

template <typename Owner, typename Count, typename Read>
std::vector<port> ports(const Owner &of, Count count, Read one) {
    std::vector<port> out;
    const auto num = read<std::size_t>([&](auto to) { return count(of.get(), to); });
    for (std::size_t i = 0; i < num; i++) {
        const char *name = nullptr;
        sterna_logical_tensor_t tensor;
        check(one(of.get(), i, &name, &tensor));
        out.push_back({name, logical_tensor(tensor)});
    }
    return out;
}

} // namespace detail

// A graph with names for inputs and outputs, and constants.
class model : public detail::owner<sterna_model_t, sterna_model_destroy> {
public:
    // Inputs and outputs are called by the numbers of their tensors.
    explicit model(const graph &graph)
        : owner(detail::read<sterna_model_t *>([&](auto out) { return sterna_model_create(out, graph.get()); })) {}

    // Inputs and outputs have names, and the order given.
    model(const graph &graph, const std::vector<port> &inputs, const std::vector<port> &outputs)
        : owner(detail::read<sterna_model_t *>([&](auto out) {
              const detail::port_list in(inputs), to(outputs);
              return sterna_model_create_with_ports(out, graph.get(), in.size(), in.data(), to.size(), to.data());
          })) {}
    // A model that a function makes anew for each set of shapes of inputs, in their order; it is called from any thread.
    model(const std::vector<port> &inputs, const std::vector<port> &outputs,
            std::function<model(const std::vector<logical_tensor> &inputs)> source)
        : owner(from_source(inputs, outputs, std::move(source))) {}

    // Gives a tensor its value, which is copied.
    model &constant(std::size_t tensor_id, const void *data, std::size_t size) {
        detail::check(sterna_model_set_constant(get(), tensor_id, data, size, nullptr, nullptr));
        return *this;
    }
    // Says what an op wildcard stands for.
    model &custom(std::size_t op_id, const custom_node &node) {
        detail::check(sterna_model_set_custom_node(get(), op_id, node.get()));
        return *this;
    }
    std::vector<port> inputs() const { return detail::ports(*this, sterna_model_get_input_num, sterna_model_get_input); }
    std::vector<port> outputs() const {
        return detail::ports(*this, sterna_model_get_output_num, sterna_model_get_output);
    }

    // A model of the C interface, which this object owns from now on.
    explicit model(sterna_model_t *handle) noexcept : owner(handle) {}

private:
    using source_function = std::function<model(const std::vector<logical_tensor> &)>;

    static sterna_model_t *from_source(
            const std::vector<port> &inputs, const std::vector<port> &outputs, source_function source) {
        const detail::port_list in(inputs), to(outputs);
        auto kept = std::make_unique<source_function>(std::move(source));
        auto *out = detail::read<sterna_model_t *>([&](auto made) {
            return sterna_model_create_from_source(made, in.size(), in.data(), to.size(), to.data(), call,
                    detail::drop<source_function>, kept.get());
        });
        (void)kept.release();
        return out;
    }
    static int call(void *source, std::size_t input_num, const sterna_model_port_t *inputs, sterna_model_t **made,
            char *message, std::size_t message_size) {
        return detail::told(message, message_size, [&] {
            std::vector<logical_tensor> in;
            for (std::size_t i = 0; i < input_num; i++) in.push_back(logical_tensor(inputs[i].tensor));
            *made = (*static_cast<source_function *>(source))(in).release();
        });
    }
};

class graph_builder;

// A value of a graph under construction: an input, a constant or a result of an op. It is a name, which is copied
// freely, and good as long as its builder stays where it is. Values and numbers are added, subtracted, multiplied and
// divided with operators.
class value {
public:
    std::size_t id() const noexcept { return id_; }
    logical_tensor desc() const;
    data_type type() const { return desc().type(); }

    friend value operator+(value a, value b);
    friend value operator-(value a, value b);
    friend value operator*(value a, value b);
    friend value operator/(value a, value b);
    friend value operator+(value a, float b);
    friend value operator-(value a, float b);
    friend value operator*(value a, float b);
    friend value operator/(value a, float b);

private:
    friend class graph_builder;
    value(graph_builder *builder, std::size_t id) noexcept : builder_(builder), id_(id) {}

    graph_builder *builder_;
    std::size_t id_;
};

// The attributes of an op, its name, and the type of its result where that does not follow. An attribute that is not set
// has the default of the schema.
class op_options {
public:
    op_options &named(std::string name) {
        name_ = std::move(name);
        return *this;
    }
    op_options &type(data_type type) {
        type_ = type;
        return *this;
    }
    // The attributes; written by the test of this header.
    op_options &alpha(float alpha) { return set(op_attr::alpha, alpha); }
    op_options &beta(float beta) { return set(op_attr::beta, beta); }
    op_options &epsilon(float epsilon) { return set(op_attr::epsilon, epsilon); }
    op_options &max(float max) { return set(op_attr::max, max); }
    op_options &min(float min) { return set(op_attr::min, min); }
    op_options &momentum(float momentum) { return set(op_attr::momentum, momentum); }
    op_options &scales(view<const float> scales) { return list(op_attr::scales, scales); }
    op_options &axis(std::int64_t axis) { return set(op_attr::axis, axis); }
    op_options &begin_norm_axis(std::int64_t begin_norm_axis) { return set(op_attr::begin_norm_axis, begin_norm_axis); }
    op_options &groups(std::int64_t groups) { return set(op_attr::groups, groups); }
    op_options &axes(view<const std::int64_t> axes) { return list(op_attr::axes, axes); }
    op_options &dilations(view<const std::int64_t> dilations) { return list(op_attr::dilations, dilations); }
    op_options &dst_shape(view<const std::int64_t> dst_shape) { return list(op_attr::dst_shape, dst_shape); }
    op_options &kernel(view<const std::int64_t> kernel) { return list(op_attr::kernel, kernel); }
    op_options &order(view<const std::int64_t> order) { return list(op_attr::order, order); }
    op_options &output_padding(view<const std::int64_t> output_padding) { return list(op_attr::output_padding, output_padding); }
    op_options &pads_begin(view<const std::int64_t> pads_begin) { return list(op_attr::pads_begin, pads_begin); }
    op_options &pads_end(view<const std::int64_t> pads_end) { return list(op_attr::pads_end, pads_end); }
    op_options &shape(view<const std::int64_t> shape) { return list(op_attr::shape, shape); }
    op_options &sizes(view<const std::int64_t> sizes) { return list(op_attr::sizes, sizes); }
    op_options &src_shape(view<const std::int64_t> src_shape) { return list(op_attr::src_shape, src_shape); }
    op_options &strides(view<const std::int64_t> strides) { return list(op_attr::strides, strides); }
    op_options &weights_shape(view<const std::int64_t> weights_shape) { return list(op_attr::weights_shape, weights_shape); }
    op_options &zps(view<const std::int64_t> zps) { return list(op_attr::zps, zps); }
    op_options &group_shape(view<const std::int64_t> group_shape) { return list(op_attr::group_shape, group_shape); }
    op_options &exclude_pad(bool exclude_pad) { return set(op_attr::exclude_pad, exclude_pad); }
    op_options &keep_dims(bool keep_dims) { return set(op_attr::keep_dims, keep_dims); }
    op_options &keep_stats(bool keep_stats) { return set(op_attr::keep_stats, keep_stats); }
    op_options &per_channel_broadcast(bool per_channel_broadcast) { return set(op_attr::per_channel_broadcast, per_channel_broadcast); }
    op_options &special_zero(bool special_zero) { return set(op_attr::special_zero, special_zero); }
    op_options &transpose_a(bool transpose_a) { return set(op_attr::transpose_a, transpose_a); }
    op_options &transpose_b(bool transpose_b) { return set(op_attr::transpose_b, transpose_b); }
    op_options &use_affine(bool use_affine) { return set(op_attr::use_affine, use_affine); }
    op_options &use_dst(bool use_dst) { return set(op_attr::use_dst, use_dst); }
    op_options &auto_broadcast(const std::string &auto_broadcast) { return set(op_attr::auto_broadcast, auto_broadcast); }
    op_options &auto_pad(const std::string &auto_pad) { return set(op_attr::auto_pad, auto_pad); }
    op_options &coordinate_transformation_mode(const std::string &coordinate_transformation_mode) { return set(op_attr::coordinate_transformation_mode, coordinate_transformation_mode); }
    op_options &data_format(const std::string &data_format) { return set(op_attr::data_format, data_format); }
    op_options &mode(const std::string &mode) { return set(op_attr::mode, mode); }
    op_options &qtype(const std::string &qtype) { return set(op_attr::qtype, qtype); }
    op_options &rounding_type(const std::string &rounding_type) { return set(op_attr::rounding_type, rounding_type); }
    op_options &weights_format(const std::string &weights_format) { return set(op_attr::weights_format, weights_format); }
    op_options &accumulation_mode(const std::string &accumulation_mode) { return set(op_attr::accumulation_mode, accumulation_mode); }
    op_options &value(float value) { return set(op_attr::value, value); }
    op_options &starts(view<const std::int64_t> starts) { return list(op_attr::starts, starts); }
    op_options &ends(view<const std::int64_t> ends) { return list(op_attr::ends, ends); }
    op_options &steps(view<const std::int64_t> steps) { return list(op_attr::steps, steps); }
    op_options &exclusive(bool exclusive) { return set(op_attr::exclusive, exclusive); }
    op_options &reverse(bool reverse) { return set(op_attr::reverse, reverse); }
    op_options &batch_dims(std::int64_t batch_dims) { return set(op_attr::batch_dims, batch_dims); }
    op_options &clamp_indices(bool clamp_indices) { return set(op_attr::clamp_indices, clamp_indices); }
    op_options &reduction(const std::string &reduction) { return set(op_attr::reduction, reduction); }
    op_options &k(std::int64_t k) { return set(op_attr::k, k); }
    op_options &largest(bool largest) { return set(op_attr::largest, largest); }
    op_options &select_last_index(bool select_last_index) { return set(op_attr::select_last_index, select_last_index); }
    // The end of the attributes.

private:
    friend class graph_builder;

    template <typename T>
    op_options &set(op_attr attr, T value) {
        attrs_.push_back([attr, value](op &op) { op.attr(attr, value); });
        return *this;
    }
    op_options &list(op_attr attr, view<const std::int64_t> values) {
        return set(attr, std::vector<std::int64_t>(values.begin(), values.end()));
    }
    op_options &list(op_attr attr, view<const float> values) {
        return set(attr, std::vector<float>(values.begin(), values.end()));
    }
    // These options, with what others set in their place.
    op_options &with(const op_options &other) {
        attrs_.insert(attrs_.end(), other.attrs_.begin(), other.attrs_.end());
        name_ = other.name_;
        if (other.type_ != data_type::undef) type_ = other.type_;
        return *this;
    }

    std::vector<std::function<void(op &)>> attrs_;
    std::string name_;
    data_type type_ = data_type::undef;
};

// Builds a graph from values. Each op is checked when it is added, so an error comes from the line that makes it and
// names the values of that line. There is a method for each op kind, `static_reshape` and `static_transpose` without
// their first word; `add_op` takes any kind, and gives all of its results.
class graph_builder : public detail::owner<sterna_graph_builder_t, sterna_graph_builder_destroy> {
public:
    graph_builder() : owner(detail::read<sterna_graph_builder_t *>(sterna_graph_builder_create)) {}
    // Values know where their builder is.
    graph_builder(graph_builder &&) = delete;

    // An input; a dim may be `unknown_dim`.
    value input(const std::string &name, data_type type, view<const std::int64_t> dims) {
        return made([&](auto out) {
            return sterna_graph_builder_add_input(get(), name.c_str(), static_cast<int>(type), rank(dims), dims.data(), out);
        });
    }
    // A constant of bytes in row-major order, which are copied.
    value constant(const std::string &name, data_type type, view<const std::int64_t> dims, const void *data,
            std::size_t size) {
        return constant(name, type, dims, data, size, nullptr, nullptr);
    }
    // A constant of values, which are copied.
    template <typename C, typename = decltype(std::declval<const C &>().data())>
    value constant(const std::string &name, view<const std::int64_t> dims, const C &values) {
        using element = std::decay_t<decltype(*values.data())>;
        return constant(name, detail::type_of<element>(), dims, values.data(), values.size() * sizeof(element));
    }
    // A constant of bytes that are not copied: `owner` keeps them until the last session of the graph is gone.
    template <typename Owner>
    value lent_constant(const std::string &name, data_type type, view<const std::int64_t> dims, const void *data,
            std::size_t size, std::shared_ptr<Owner> owner) {
        using share = std::shared_ptr<Owner>;
        auto kept = std::make_unique<share>(std::move(owner));
        const value out = constant(name, type, dims, data, size, detail::drop<share>, kept.get());
        (void)kept.release();
        return out;
    }
    // A number of rank 0.
    value scalar(data_type type, float number) { return fill(type, {}, number); }

    std::vector<value> add_op(
            op_kind kind, view<const value> operands, const op_options &options = {}, std::size_t outputs = 1) {
        op op(0, kind, options.name_);
        for (const auto &set : options.attrs_) set(op);
        const auto in = ids(operands);
        return made(outputs, [&](auto out) {
            return sterna_graph_builder_add_op(get(), op.get(), in.size(), in.data(), static_cast<int>(options.type_),
                    outputs, out);
        });
    }
    // An op that only the program knows; dims of results that are not described follow from what it infers.
    std::vector<value> custom(
            const custom_node &node, view<const value> operands, view<const logical_tensor> outputs) {
        const auto in = ids(operands);
        const auto descs = detail::addresses(outputs);
        return made(outputs.size(), [&](auto out) {
            return sterna_graph_builder_add_custom(
                    get(), node.get(), in.size(), in.data(), descs.size(), descs.data(), out);
        });
    }
    value concat(view<const value> operands, std::int64_t axis, const op_options &options = {}) {
        return add_op(op_kind::concat, operands, op_options().axis(axis).with(options))[0];
    }
    // Masked attention; the options are made of the descriptions of values.
    value attention(const sterna::attention &attention) {
        const auto options = attention.options();
        return made([&](auto out) { return sterna_graph_builder_add_attention(get(), &options, out); });
    }
    void output(const std::string &name, value value) {
        detail::check(sterna_graph_builder_add_output(get(), name.c_str(), value.id_));
    }
    // The model; the builder is empty afterwards.
    model build() {
        return model(detail::read<sterna_model_t *>([&](auto out) { return sterna_graph_builder_build(get(), out); }));
    }

    // A method for each op kind; written by the test of this header.
    value abs(value src, const op_options &options = {}) {
        return single(op_kind::abs, {src}, options);
    }
    value abs_backward(value src, value diff_dst, const op_options &options = {}) {
        return single(op_kind::abs_backward, {src, diff_dst}, options);
    }
    value clamp(value src, float min, float max, const op_options &options = {}) {
        return single(op_kind::clamp, {src}, op_options().min(min).max(max).with(options));
    }
    value elu(value src, float alpha, const op_options &options = {}) {
        return single(op_kind::elu, {src}, op_options().alpha(alpha).with(options));
    }
    value exp(value src, const op_options &options = {}) {
        return single(op_kind::exp, {src}, options);
    }
    value hard_swish(value src, const op_options &options = {}) {
        return single(op_kind::hard_swish, {src}, options);
    }
    value hard_swish_backward(value src, value diff_dst, const op_options &options = {}) {
        return single(op_kind::hard_swish_backward, {src, diff_dst}, options);
    }
    value leaky_relu(value src, float alpha, const op_options &options = {}) {
        return single(op_kind::leaky_relu, {src}, op_options().alpha(alpha).with(options));
    }
    value log(value src, const op_options &options = {}) {
        return single(op_kind::log, {src}, options);
    }
    value log_softmax(value src, std::int64_t axis, const op_options &options = {}) {
        return single(op_kind::log_softmax, {src}, op_options().axis(axis).with(options));
    }
    value log_softmax_backward(value diff_dst, value dst, std::int64_t axis, const op_options &options = {}) {
        return single(op_kind::log_softmax_backward, {diff_dst, dst}, op_options().axis(axis).with(options));
    }
    value mish(value src, const op_options &options = {}) {
        return single(op_kind::mish, {src}, options);
    }
    value mish_backward(value src, value diff_dst, const op_options &options = {}) {
        return single(op_kind::mish_backward, {src, diff_dst}, options);
    }
    value reciprocal(value src, const op_options &options = {}) {
        return single(op_kind::reciprocal, {src}, options);
    }
    value relu(value src, const op_options &options = {}) {
        return single(op_kind::relu, {src}, options);
    }
    value reorder(value src, const op_options &options = {}) {
        return single(op_kind::reorder, {src}, options);
    }
    value round(value src, const op_options &options = {}) {
        return single(op_kind::round, {src}, options);
    }
    value sigmoid(value src, const op_options &options = {}) {
        return single(op_kind::sigmoid, {src}, options);
    }
    value softmax_backward(value diff_dst, value dst, std::int64_t axis, const op_options &options = {}) {
        return single(op_kind::softmax_backward, {diff_dst, dst}, op_options().axis(axis).with(options));
    }
    value sqrt(value src, const op_options &options = {}) {
        return single(op_kind::sqrt, {src}, options);
    }
    value square(value src, const op_options &options = {}) {
        return single(op_kind::square, {src}, options);
    }
    value transpose(value src, view<const std::int64_t> order, const op_options &options = {}) {
        return single(op_kind::static_transpose, {src}, op_options().order(order).with(options));
    }
    value tanh(value src, const op_options &options = {}) {
        return single(op_kind::tanh, {src}, options);
    }
    value type_cast(value src, data_type type, const op_options &options = {}) {
        return single(op_kind::type_cast, {src}, op_options().type(type).with(options));
    }
    value hard_sigmoid(value src, float alpha, float beta, const op_options &options = {}) {
        return single(op_kind::hard_sigmoid, {src}, op_options().alpha(alpha).beta(beta).with(options));
    }
    value hard_sigmoid_backward(value src, value diff_dst, float alpha, float beta, const op_options &options = {}) {
        return single(op_kind::hard_sigmoid_backward, {src, diff_dst},
                op_options().alpha(alpha).beta(beta).with(options));
    }
    value pow(value src, float beta, const op_options &options = {}) {
        return single(op_kind::pow, {src}, op_options().beta(beta).with(options));
    }
    value gen_index(value src, std::int64_t axis, const op_options &options = {}) {
        return single(op_kind::gen_index, {src}, op_options().axis(axis).with(options));
    }
    value dropout(value src, value seed, value offset, value probability, const op_options &options = {}) {
        return single(op_kind::dropout, {src, seed, offset, probability}, options);
    }
    value logical_not(value src, const op_options &options = {}) {
        return single(op_kind::logical_not, {src}, options);
    }
    value is_nan(value src, const op_options &options = {}) {
        return single(op_kind::is_nan, {src}, options);
    }
    value is_inf(value src, const op_options &options = {}) {
        return single(op_kind::is_inf, {src}, options);
    }
    value is_finite(value src, const op_options &options = {}) {
        return single(op_kind::is_finite, {src}, options);
    }
    value identity(value src, const op_options &options = {}) {
        return single(op_kind::identity, {src}, options);
    }
    value negative(value src, const op_options &options = {}) {
        return single(op_kind::negative, {src}, options);
    }
    value floor(value src, const op_options &options = {}) {
        return single(op_kind::floor, {src}, options);
    }
    value ceil(value src, const op_options &options = {}) {
        return single(op_kind::ceil, {src}, options);
    }
    value fill(data_type type, view<const std::int64_t> shape, float value, const op_options &options = {}) {
        return single(op_kind::fill, {}, op_options().type(type).shape(shape).value(value).with(options));
    }
    value cast(value src, data_type type, const op_options &options = {}) {
        return single(op_kind::cast, {src}, op_options().type(type).with(options));
    }
    value sin(value src, const op_options &options = {}) {
        return single(op_kind::sin, {src}, options);
    }
    value cos(value src, const op_options &options = {}) {
        return single(op_kind::cos, {src}, options);
    }
    value add(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::add, {src_0, src_1}, options);
    }
    value avg_pool(value src, view<const std::int64_t> strides, view<const std::int64_t> pads_begin,
            view<const std::int64_t> pads_end, bool exclude_pad, view<const std::int64_t> kernel,
            const op_options &options = {}) {
        return single(op_kind::avg_pool, {src},
                op_options().strides(strides).pads_begin(pads_begin).pads_end(pads_end).exclude_pad(exclude_pad).kernel(kernel).with(options));
    }
    value batch_norm_inference(value src, value gamma, value beta, value mean, value variance, float epsilon,
            const op_options &options = {}) {
        return single(op_kind::batch_norm_inference, {src, gamma, beta, mean, variance},
                op_options().epsilon(epsilon).with(options));
    }
    value bias_add(value src, value bias, const op_options &options = {}) {
        return single(op_kind::bias_add, {src, bias}, options);
    }
    value bias_add_backward(value diff_dst, const op_options &options = {}) {
        return single(op_kind::bias_add_backward, {diff_dst}, options);
    }
    value clamp_backward(value src_or_dst, value diff_dst, float min, float max, const op_options &options = {}) {
        return single(op_kind::clamp_backward, {src_or_dst, diff_dst}, op_options().min(min).max(max).with(options));
    }
    value conv_transpose_backward_data(value diff_dst, value weights, view<const std::int64_t> strides,
            view<const std::int64_t> pads_begin, view<const std::int64_t> pads_end, view<const std::int64_t> dilations,
            const op_options &options = {}) {
        return single(op_kind::conv_transpose_backward_data, {diff_dst, weights},
                op_options().strides(strides).pads_begin(pads_begin).pads_end(pads_end).dilations(dilations).with(options));
    }
    value dequantize(value src, view<const float> scales, const op_options &options = {}) {
        return single(op_kind::dequantize, {src}, op_options().scales(scales).with(options));
    }
    value divide(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::divide, {src_0, src_1}, options);
    }
    value elu_backward(value src_or_dst, value diff_dst, float alpha, const op_options &options = {}) {
        return single(op_kind::elu_backward, {src_or_dst, diff_dst}, op_options().alpha(alpha).with(options));
    }
    value gelu(value src, const op_options &options = {}) {
        return single(op_kind::gelu, {src}, options);
    }
    value gelu_backward(value src, value diff_dst, const op_options &options = {}) {
        return single(op_kind::gelu_backward, {src, diff_dst}, options);
    }
    value maximum(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::maximum, {src_0, src_1}, options);
    }
    value max_pool(value src, view<const std::int64_t> strides, view<const std::int64_t> pads_begin,
            view<const std::int64_t> pads_end, view<const std::int64_t> kernel, const op_options &options = {}) {
        return single(op_kind::max_pool, {src},
                op_options().strides(strides).pads_begin(pads_begin).pads_end(pads_end).kernel(kernel).with(options));
    }
    value max_pool_backward(value src, value diff_dst, view<const std::int64_t> strides,
            view<const std::int64_t> pads_begin, view<const std::int64_t> pads_end, view<const std::int64_t> kernel,
            const op_options &options = {}) {
        return single(op_kind::max_pool_backward, {src, diff_dst},
                op_options().strides(strides).pads_begin(pads_begin).pads_end(pads_end).kernel(kernel).with(options));
    }
    value minimum(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::minimum, {src_0, src_1}, options);
    }
    value multiply(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::multiply, {src_0, src_1}, options);
    }
    value prelu(value src, value slope, const op_options &options = {}) {
        return single(op_kind::prelu, {src, slope}, options);
    }
    value quantize(value src, data_type type, view<const float> scales, const op_options &options = {}) {
        return single(op_kind::quantize, {src}, op_options().type(type).scales(scales).with(options));
    }
    value relu_backward(value src_or_dst, value diff_dst, const op_options &options = {}) {
        return single(op_kind::relu_backward, {src_or_dst, diff_dst}, options);
    }
    value sigmoid_backward(value src_or_dst, value diff_dst, const op_options &options = {}) {
        return single(op_kind::sigmoid_backward, {src_or_dst, diff_dst}, options);
    }
    value softmax(value src, std::int64_t axis, const op_options &options = {}) {
        return single(op_kind::softmax, {src}, op_options().axis(axis).with(options));
    }
    value softplus(value src, const op_options &options = {}) {
        return single(op_kind::softplus, {src}, options);
    }
    value softplus_backward(value src, value diff_dst, const op_options &options = {}) {
        return single(op_kind::softplus_backward, {src, diff_dst}, options);
    }
    value sqrt_backward(value src_or_dst, value diff_dst, const op_options &options = {}) {
        return single(op_kind::sqrt_backward, {src_or_dst, diff_dst}, options);
    }
    value squared_difference(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::squared_difference, {src_0, src_1}, options);
    }
    value reshape(value src, view<const std::int64_t> shape, const op_options &options = {}) {
        return single(op_kind::static_reshape, {src}, op_options().shape(shape).special_zero(false).with(options));
    }
    value subtract(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::subtract, {src_0, src_1}, options);
    }
    value tanh_backward(value src_or_dst, value diff_dst, const op_options &options = {}) {
        return single(op_kind::tanh_backward, {src_or_dst, diff_dst}, options);
    }
    value select(value cond, value then, value else_, const op_options &options = {}) {
        return single(op_kind::select, {cond, then, else_}, options);
    }
    value greater_equal(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::greater_equal, {src_0, src_1}, options);
    }
    value equal(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::equal, {src_0, src_1}, options);
    }
    value not_equal(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::not_equal, {src_0, src_1}, options);
    }
    value less(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::less, {src_0, src_1}, options);
    }
    value less_equal(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::less_equal, {src_0, src_1}, options);
    }
    value greater(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::greater, {src_0, src_1}, options);
    }
    value logical_and(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::logical_and, {src_0, src_1}, options);
    }
    value logical_or(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::logical_or, {src_0, src_1}, options);
    }
    value logical_xor(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::logical_xor, {src_0, src_1}, options);
    }
    value modulo(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::modulo, {src_0, src_1}, options);
    }
    value power(value src_0, value src_1, const op_options &options = {}) {
        return single(op_kind::power, {src_0, src_1}, options);
    }
    value slice(value src, view<const std::int64_t> starts, view<const std::int64_t> ends,
            const op_options &options = {}) {
        return single(op_kind::slice, {src}, op_options().starts(starts).ends(ends).with(options));
    }
    value cumsum(value src, std::int64_t axis, const op_options &options = {}) {
        return single(op_kind::cum_sum, {src}, op_options().axis(axis).with(options));
    }
    value gather(value src, value indices, std::int64_t axis, const op_options &options = {}) {
        return single(op_kind::gather, {src, indices}, op_options().axis(axis).with(options));
    }
    value gather_elements(value src, value indices, std::int64_t axis, const op_options &options = {}) {
        return single(op_kind::gather_elements, {src, indices}, op_options().axis(axis).with(options));
    }
    value gather_nd(value src, value indices, const op_options &options = {}) {
        return single(op_kind::gather_nd, {src, indices}, options);
    }
    value gather_backward(value diff_dst, value indices, view<const std::int64_t> src_shape,
            const op_options &options = {}) {
        return single(op_kind::gather_backward, {diff_dst, indices}, op_options().src_shape(src_shape).with(options));
    }
    value scatter_elements(value src, value indices, value updates, std::int64_t axis, const op_options &options = {}) {
        return single(op_kind::scatter_elements, {src, indices, updates}, op_options().axis(axis).with(options));
    }
    value scatter_nd(value src, value indices, value updates, const op_options &options = {}) {
        return single(op_kind::scatter_nd, {src, indices, updates}, options);
    }
    value cache_store(value src, value rows, value slots, const op_options &options = {}) {
        return single(op_kind::cache_store, {src, rows, slots}, options);
    }
    value argmax(value src, std::int64_t axis, const op_options &options = {}) {
        return single(op_kind::arg_max, {src}, op_options().axis(axis).with(options));
    }
    value argmin(value src, std::int64_t axis, const op_options &options = {}) {
        return single(op_kind::arg_min, {src}, op_options().axis(axis).with(options));
    }
    value paged_load(value src, value block_table, const op_options &options = {}, view<const value> more = {}) {
        return single(op_kind::paged_load, {src, block_table}, options, more);
    }
    value avg_pool_backward(value diff_dst, view<const std::int64_t> strides, view<const std::int64_t> pads_begin,
            view<const std::int64_t> pads_end, bool exclude_pad, view<const std::int64_t> kernel,
            const op_options &options = {}, view<const value> more = {}) {
        return single(op_kind::avg_pool_backward, {diff_dst},
                op_options().strides(strides).pads_begin(pads_begin).pads_end(pads_end).exclude_pad(exclude_pad).kernel(kernel).with(options),
                more);
    }
    value batch_norm_training_backward(value src, value diff_dst, value mean, value variance, float epsilon,
            const op_options &options = {}, view<const value> more = {}) {
        return single(op_kind::batch_norm_training_backward, {src, diff_dst, mean, variance},
                op_options().epsilon(epsilon).with(options), more);
    }
    value convolution(value src, value weights, view<const std::int64_t> strides, view<const std::int64_t> pads_begin,
            view<const std::int64_t> pads_end, view<const std::int64_t> dilations, const op_options &options = {},
            view<const value> more = {}) {
        return single(op_kind::convolution, {src, weights},
                op_options().strides(strides).pads_begin(pads_begin).pads_end(pads_end).dilations(dilations).with(options),
                more);
    }
    value convolution_backward_data(value diff_dst, value weights, view<const std::int64_t> strides,
            view<const std::int64_t> pads_begin, view<const std::int64_t> pads_end, view<const std::int64_t> dilations,
            const op_options &options = {}, view<const value> more = {}) {
        return single(op_kind::convolution_backward_data, {diff_dst, weights},
                op_options().strides(strides).pads_begin(pads_begin).pads_end(pads_end).dilations(dilations).with(options),
                more);
    }
    value convolution_backward_weights(value src, value diff_dst, view<const std::int64_t> strides,
            view<const std::int64_t> pads_begin, view<const std::int64_t> pads_end, view<const std::int64_t> dilations,
            const op_options &options = {}, view<const value> more = {}) {
        return single(op_kind::convolution_backward_weights, {src, diff_dst},
                op_options().strides(strides).pads_begin(pads_begin).pads_end(pads_end).dilations(dilations).with(options),
                more);
    }
    value conv_transpose(value src, value weights, view<const std::int64_t> strides,
            view<const std::int64_t> pads_begin, view<const std::int64_t> pads_end, view<const std::int64_t> dilations,
            const op_options &options = {}, view<const value> more = {}) {
        return single(op_kind::conv_transpose, {src, weights},
                op_options().strides(strides).pads_begin(pads_begin).pads_end(pads_end).dilations(dilations).with(options),
                more);
    }
    value conv_transpose_backward_weights(value src, value diff_dst, view<const std::int64_t> strides,
            view<const std::int64_t> pads_begin, view<const std::int64_t> pads_end, view<const std::int64_t> dilations,
            const op_options &options = {}, view<const value> more = {}) {
        return single(op_kind::conv_transpose_backward_weights, {src, diff_dst},
                op_options().strides(strides).pads_begin(pads_begin).pads_end(pads_end).dilations(dilations).with(options),
                more);
    }
    value dynamic_dequantize(value src, value scales, const op_options &options = {}, view<const value> more = {}) {
        return single(op_kind::dynamic_dequantize, {src, scales}, options, more);
    }
    value dynamic_quantize(value src, value scales, data_type type, const op_options &options = {},
            view<const value> more = {}) {
        return single(op_kind::dynamic_quantize, {src, scales}, op_options().type(type).with(options), more);
    }
    value interpolate(value src, const std::string &mode, const op_options &options = {}, view<const value> more = {}) {
        return single(op_kind::interpolate, {src}, op_options().mode(mode).with(options), more);
    }
    value interpolate_backward(value src, value diff_dst, const std::string &mode, const op_options &options = {},
            view<const value> more = {}) {
        return single(op_kind::interpolate_backward, {src, diff_dst}, op_options().mode(mode).with(options), more);
    }
    value layer_norm(value src, const op_options &options = {}, view<const value> more = {}) {
        return single(op_kind::layer_norm, {src}, options, more);
    }
    value layer_norm_backward(value src, value diff_dst, value mean, value variance, const op_options &options = {},
            view<const value> more = {}) {
        return single(op_kind::layer_norm_backward, {src, diff_dst, mean, variance}, options, more);
    }
    value matmul(value src, value weights, const op_options &options = {}, view<const value> more = {}) {
        return single(op_kind::matmul, {src, weights}, options, more);
    }
    value reduce_l1(value src, view<const std::int64_t> axes, const op_options &options = {},
            view<const value> more = {}) {
        return single(op_kind::reduce_l1, {src}, op_options().axes(axes).with(options), more);
    }
    value reduce_l2(value src, view<const std::int64_t> axes, const op_options &options = {},
            view<const value> more = {}) {
        return single(op_kind::reduce_l2, {src}, op_options().axes(axes).with(options), more);
    }
    value reduce_max(value src, view<const std::int64_t> axes, const op_options &options = {},
            view<const value> more = {}) {
        return single(op_kind::reduce_max, {src}, op_options().axes(axes).with(options), more);
    }
    value reduce_mean(value src, view<const std::int64_t> axes, const op_options &options = {},
            view<const value> more = {}) {
        return single(op_kind::reduce_mean, {src}, op_options().axes(axes).with(options), more);
    }
    value reduce_min(value src, view<const std::int64_t> axes, const op_options &options = {},
            view<const value> more = {}) {
        return single(op_kind::reduce_min, {src}, op_options().axes(axes).with(options), more);
    }
    value reduce_prod(value src, view<const std::int64_t> axes, const op_options &options = {},
            view<const value> more = {}) {
        return single(op_kind::reduce_prod, {src}, op_options().axes(axes).with(options), more);
    }
    value reduce_sum(value src, view<const std::int64_t> axes, const op_options &options = {},
            view<const value> more = {}) {
        return single(op_kind::reduce_sum, {src}, op_options().axes(axes).with(options), more);
    }
    value group_norm(value src, std::int64_t groups, const op_options &options = {}, view<const value> more = {}) {
        return single(op_kind::group_norm, {src}, op_options().groups(groups).with(options), more);
    }
    value rms_norm(value src, const op_options &options = {}, view<const value> more = {}) {
        return single(op_kind::rms_norm, {src}, options, more);
    }
    std::vector<value> batch_norm_forward_training(value src, value mean, value variance, float epsilon,
            const op_options &options = {}, view<const value> more = {}) {
        return several(op_kind::batch_norm_forward_training, {src, mean, variance},
                op_options().epsilon(epsilon).with(options), more, 5);
    }
    std::vector<value> prelu_backward(value src, value slope, value diff_dst, const op_options &options = {},
            view<const value> more = {}) {
        return several(op_kind::prelu_backward, {src, slope, diff_dst}, options, more, 2);
    }
    std::vector<value> topk(value src, std::int64_t k, const op_options &options = {}, view<const value> more = {}) {
        return several(op_kind::top_k, {src}, op_options().k(k).with(options), more, 2);
    }
    // The end of the op kinds.

private:
    friend class value;

    static std::int32_t rank(view<const std::int64_t> dims) noexcept {
        return dims.size() > max_ndims ? STERNA_MAX_NDIMS + 1 : static_cast<std::int32_t>(dims.size());
    }
    std::vector<std::size_t> ids(view<const value> values) const {
        std::vector<std::size_t> out;
        for (const auto &one : values) {
            if (one.builder_ != this) throw error(status::invalid_arguments, "a value belongs to another builder");
            out.push_back(one.id_);
        }
        return out;
    }
    value constant(const std::string &name, data_type type, view<const std::int64_t> dims, const void *data,
            std::size_t size, sterna_release_t release, void *user_data) {
        return made([&](auto out) {
            return sterna_graph_builder_add_constant(get(), name.c_str(), static_cast<int>(type), rank(dims), dims.data(),
                    data, size, release, user_data, out);
        });
    }
    template <typename Call>
    value made(Call &&call) {
        return value(this, detail::read<std::size_t>(call));
    }
    template <typename Call>
    std::vector<value> made(std::size_t count, Call &&call) {
        std::vector<std::size_t> ids(count);
        detail::check(call(ids.data()));
        std::vector<value> out;
        for (const auto id : ids) out.push_back(value(this, id));
        return out;
    }
    value single(op_kind kind, std::initializer_list<value> operands, const op_options &options,
            view<const value> more = {}) {
        return several(kind, operands, options, more, 1)[0];
    }
    std::vector<value> several(op_kind kind, std::initializer_list<value> operands, const op_options &options,
            view<const value> more, std::size_t outputs) {
        std::vector<value> all(operands);
        all.insert(all.end(), more.begin(), more.end());
        return add_op(kind, all, options, outputs);
    }
};

inline logical_tensor value::desc() const {
    return logical_tensor(detail::read<sterna_logical_tensor_t>(
            [&](auto out) { return sterna_graph_builder_get_logical_tensor(builder_->get(), id_, out); }));
}
inline value operator+(value a, value b) { return a.builder_->add(a, b); }
inline value operator-(value a, value b) { return a.builder_->subtract(a, b); }
inline value operator*(value a, value b) { return a.builder_->multiply(a, b); }
inline value operator/(value a, value b) { return a.builder_->divide(a, b); }
inline value operator+(value a, float b) { return a + a.builder_->scalar(a.type(), b); }
inline value operator-(value a, float b) { return a - a.builder_->scalar(a.type(), b); }
inline value operator*(value a, float b) { return a * a.builder_->scalar(a.type(), b); }
inline value operator/(value a, float b) { return a / a.builder_->scalar(a.type(), b); }

// Elements that an op of the program's reads or writes; `T` is its business.
template <typename View>
class custom_view {
public:
    explicit custom_view(const View &view) noexcept : view_(view) {}

    data_type type() const noexcept { return static_cast<data_type>(view_.data_type); }
    view<const std::int64_t> dims() const noexcept { return detail::dims_of(view_.dims, view_.ndims); }
    // Empty if the layout is dense and row-major.
    view<const std::int64_t> strides() const noexcept {
        return view_.strides ? detail::dims_of(view_.strides, view_.ndims) : view<const std::int64_t>();
    }
    // The elements, in a row.
    template <typename T>
    auto values() const {
        if (detail::type_of<T>() != type()) throw error(status::invalid_data_type, "the elements have another type");
        if (view_.strides) throw error(status::invalid_arguments, "the elements are not dense and row-major");
        std::size_t count = 1;
        for (const auto dim : dims()) count *= static_cast<std::size_t>(dim);
        using element = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view_.data)>>, const T, T>;
        return view<element>(static_cast<element *>(view_.data), count);
    }

private:
    View view_;
};

using custom_input = custom_view<sterna_view_t>;
using custom_output = custom_view<sterna_view_mut_t>;

// The base of a program's class that runs ops which no kernel runs. It is called from any thread, several at a time; what
// it throws is the error of the run.
class custom_op {
public:
    virtual ~custom_op() = default;

    // The dims of the outputs for inputs of known types and dims.
    virtual std::vector<std::vector<std::int64_t>> output_dims(
            custom_node_ref node, const std::vector<logical_tensor> &inputs, std::size_t outputs) const = 0;
    // Reads the inputs and writes all elements of the outputs.
    virtual void run(custom_node_ref node, const std::vector<custom_input> &inputs,
            const std::vector<custom_output> &outputs) const = 0;
};

namespace detail {

using shared_op = std::shared_ptr<const custom_op>;

inline int infer(void *self, const sterna_custom_node_t *node, std::size_t input_num,
        const sterna_logical_tensor_t *inputs, std::size_t output_num, sterna_logical_tensor_t *outputs, char *message,
        std::size_t message_size) {
    return told(message, message_size, [&] {
        const std::vector<logical_tensor> in(inputs, inputs + input_num);
        const auto dims = (*static_cast<shared_op *>(self))->output_dims(custom_node_ref(node), in, output_num);
        if (dims.size() != output_num) throw error(status::invalid_arguments, "there are dims for each output");
        for (std::size_t i = 0; i < output_num; i++)
            outputs[i] = *logical_tensor(outputs[i].id, static_cast<data_type>(outputs[i].data_type), dims[i]).get();
    });
}

inline int run(void *self, const sterna_custom_node_t *node, std::size_t input_num, const sterna_view_t *inputs,
        std::size_t output_num, const sterna_view_mut_t *outputs, char *message, std::size_t message_size) {
    return told(message, message_size, [&] {
        const std::vector<custom_input> in(inputs, inputs + input_num);
        const std::vector<custom_output> out(outputs, outputs + output_num);
        (*static_cast<shared_op *>(self))->run(custom_node_ref(node), in, out);
    });
}

} // namespace detail

// Says that an output of a run, `present`, is an input of the next one, `past`. It grows along the axis, or if none is
// given along the last dim that the model leaves open.
struct state_link {
    std::string past, present;
    std::optional<std::int64_t> axis = std::nullopt;
    // The most rows; 0 for memory that doubles when it is used up.
    std::size_t capacity = 0;
    // The newest rows, which are kept from run to run; 0 for all.
    std::size_t window = 0;
    // True if it does not grow and starts as zeros, whichever dims the model leaves open; it then has no axis.
    bool is_fixed = false;
};

// The dims of a tensor, by name.
struct named_dims {
    std::string name;
    std::vector<std::int64_t> dims;
};

// The options of a session, one call each.
class session_options {
public:
    // The number of sets of shapes whose plans are kept.
    session_options &shapes(std::size_t count) noexcept {
        options_.shapes = count;
        return *this;
    }
    // The number of blocks of memory that the session keeps for later runs.
    session_options &arenas(std::size_t count) noexcept {
        options_.arenas = count;
        return *this;
    }
    // How far floating-point arithmetic may be relaxed; as far as the graph says, unless it is set.
    session_options &fpmath(fpmath_mode mode, bool apply_to_int = false) noexcept {
        options_.fpmath_mode = static_cast<int>(mode);
        options_.fpmath_apply_to_int = apply_to_int;
        return *this;
    }
    // An output of a run that is an input of the next one.
    session_options &state(state_link link) {
        links_.push_back(std::move(link));
        return *this;
    }
    // Adds the links that the names of inputs and outputs tell, such as the one from `present.0.key` to
    // `past_key_values.0.key`.
    session_options &find_states() noexcept {
        options_.find_states = 1;
        return *this;
    }
    // Runs ops of a name, `domain::Name` or the name of an op kind.
    session_options &op(std::string name, std::shared_ptr<const custom_op> op) {
        ops_.emplace_back(std::move(name), std::move(op));
        return *this;
    }

private:
    friend class session;

    sterna_session_options_t options_ {};
    std::vector<std::pair<std::string, detail::shared_op>> ops_;
    std::vector<state_link> links_;
};

// An input or an output of a run by name: `{"x", {values, {2, 3}}}`.
struct named_operand {
    std::string name;
    operand values;
};
struct named_target {
    std::string name;
    target values;
};

// The results of a run, in the order of the model.
class session_outputs {
public:
    std::size_t size() const noexcept { return tensors_.size(); }
    const std::string &name(std::size_t index) const { return names_.at(index); }
    const tensor &operator[](std::size_t index) const { return tensors_.at(index); }
    const tensor &operator[](const std::string &name) const {
        for (std::size_t i = 0; i < names_.size(); i++)
            if (names_[i] == name) return tensors_[i];
        throw error(status::invalid_arguments, "no output is called `" + name + "`");
    }
    // The elements of an output, good as long as this object.
    template <typename T>
    view<const T> values(const std::string &name) const {
        const tensor &of = (*this)[name];
        const logical_tensor desc = of.desc();
        if (desc.type() != detail::type_of<T>()) throw error(status::invalid_data_type, "the elements have another type");
        return {static_cast<const T *>(of.data()), desc.memory_size() / sizeof(T)};
    }

private:
    friend class session;
    std::vector<std::string> names_;
    std::vector<tensor> tensors_;
};

class session;

namespace detail {

template <typename Named, typename T>
std::vector<Named> named(view<const T> list) {
    std::vector<Named> out;
    for (const auto &one : list) out.push_back({one.name.c_str(), one.values.get()});
    return out;
}

inline std::vector<sterna_named_dims_t> named(view<const named_dims> list) {
    std::vector<sterna_named_dims_t> out;
    for (const auto &one : list)
        out.push_back({one.name.c_str(), static_cast<std::int32_t>(one.dims.size()), one.dims.data()});
    return out;
}

} // namespace detail

// The state of one sequence of runs of a session, such as the keys and values of the tokens so far.
class session_state : public detail::owner<sterna_session_state_t, sterna_session_state_destroy> {
public:
    // Dims of its tensors that the model leaves open are said here, or follow from the first run.
    explicit session_state(const session &session, view<const named_dims> dims = {});

    // The number of rows: the tokens so far, or those of the window.
    std::size_t size() const {
        return detail::read<std::size_t>([&](auto out) { return sterna_session_state_get_row_num(get(), out); });
    }
    std::size_t memory() const {
        return detail::read<std::size_t>([&](auto out) { return sterna_session_state_get_memory(get(), out); });
    }
    void reset() { detail::check(sterna_session_state_reset(get())); }
    // Drops the newest rows behind a length.
    void trim(std::size_t rows) { detail::check(sterna_session_state_trim(get(), rows)); }
    // A copy, for another sequence that starts alike.
    session_state fork() const {
        return session_state(detail::read<sterna_session_state_t *>(
                [&](auto out) { return sterna_session_state_fork(get(), out); }));
    }
    // Sets a tensor, by the name of the input: a prefix that was computed before.
    void set(const std::string &name, const operand &value) {
        const sterna_view_t view = value.get();
        detail::check(sterna_session_state_set(get(), name.c_str(), &view));
    }

private:
    explicit session_state(sterna_session_state_t *handle) noexcept : owner(handle) {}
};

// A model that runs as a whole, on inputs of any shapes that it allows; see sterna_session_t.
class session : public detail::owner<sterna_session_t, sterna_session_destroy> {
public:
    session(const model &model, engine_ref engine, const session_options &options = {})
        : owner(create(model, engine, options)) {}

    std::vector<port> inputs() const {
        return detail::ports(*this, sterna_session_get_input_num, sterna_session_get_input);
    }
    std::vector<port> outputs() const {
        return detail::ports(*this, sterna_session_get_output_num, sterna_session_get_output);
    }
    // The descriptions of the outputs for inputs of given dims; nothing runs.
    std::vector<logical_tensor> output_descs(view<const named_dims> inputs) const {
        const auto in = detail::named(inputs);
        std::vector<sterna_logical_tensor_t> out(
                detail::read<std::size_t>([&](auto to) { return sterna_session_get_output_num(get(), to); }));
        detail::check(
                sterna_session_get_output_logical_tensors(get(), in.size(), in.data(), out.size(), out.data()));
        return {out.begin(), out.end()};
    }
    // All outputs, in new memory.
    session_outputs run(view<const named_operand> inputs) const {
        const auto in = detail::named<sterna_named_view_t>(inputs);
        return answered([&](std::size_t num, sterna_tensor_t **to) {
            return sterna_session_run_new(get(), in.size(), in.data(), num, to);
        });
    }
    // The outputs that are no state, in new memory; the run reads the rows of the state and leaves its own there.
    session_outputs run(session_state &state, view<const named_operand> inputs) const {
        const auto in = detail::named<sterna_named_view_t>(inputs);
        return answered([&](std::size_t num, sterna_tensor_t **to) {
            return sterna_session_state_run_new(state.get(), get(), in.size(), in.data(), num, to);
        });
    }
    void run_into(session_state &state, view<const named_operand> inputs, view<const named_target> outputs) const {
        const auto in = detail::named<sterna_named_view_t>(inputs);
        const auto out = detail::named<sterna_named_view_mut_t>(outputs);
        detail::check(
                sterna_session_state_run(state.get(), get(), in.size(), in.data(), out.size(), out.data()));
    }
    // All outputs, into memory of the program's.
    void run_into(view<const named_operand> inputs, view<const named_target> outputs) const {
        const auto in = detail::named<sterna_named_view_t>(inputs);
        const auto out = detail::named<sterna_named_view_mut_t>(outputs);
        detail::check(sterna_session_run(get(), in.size(), in.data(), out.size(), out.data()));
    }
    // Bytes of a run on inputs of the shapes that ran last.
    std::size_t run_memory() const {
        return detail::read<std::size_t>([&](auto out) { return sterna_session_get_run_memory(get(), out); });
    }

private:
    static sterna_session_t *create(const model &model, engine_ref engine, const session_options &given) {
        auto options = given.options_;
        options.struct_size = sizeof options;
        std::vector<std::unique_ptr<detail::shared_op>> owners;
        std::vector<sterna_custom_op_t> ops;
        for (const auto &[name, op] : given.ops_) {
            owners.push_back(std::make_unique<detail::shared_op>(op));
            ops.push_back({sizeof(sterna_custom_op_t), name.c_str(), detail::infer, detail::run, owners.back().get(),
                    detail::drop<detail::shared_op>});
        }
        std::vector<const sterna_custom_op_t *> addresses;
        for (const auto &op : ops) addresses.push_back(&op);
        options.op_num = addresses.size();
        options.ops = addresses.data();
        std::vector<sterna_state_link_t> links;
        for (const auto &one : given.links_)
            links.push_back({sizeof(sterna_state_link_t), one.past.c_str(), one.present.c_str(), one.axis.value_or(0),
                    one.axis.has_value(), one.capacity, one.window, one.is_fixed});
        std::vector<const sterna_state_link_t *> links_at;
        for (const auto &one : links) links_at.push_back(&one);
        options.link_num = links_at.size();
        options.links = links_at.data();
        auto *out = detail::read<sterna_session_t *>(
                [&](auto to) { return sterna_session_create(to, model.get(), engine.get(), &options); });
        // The session drops them.
        for (auto &owner : owners) (void)owner.release();
        return out;
    }
    // The outputs that a call gives; those that are part of a state are not among them.
    template <typename Call>
    session_outputs answered(Call &&call) const {
        session_outputs out;
        std::vector<sterna_tensor_t *> handles(
                detail::read<std::size_t>([&](auto to) { return sterna_session_get_output_num(get(), to); }));
        const auto ports = outputs();
        out.tensors_.reserve(handles.size());
        out.names_.reserve(handles.size());
        detail::check(call(handles.size(), handles.data()));
        for (std::size_t i = 0; i < handles.size(); i++) {
            if (!handles[i]) continue;
            out.tensors_.push_back(tensor(handles[i]));
            out.names_.push_back(ports[i].name);
        }
        return out;
    }
};

inline session_state::session_state(const session &session, view<const named_dims> dims)
    : owner(detail::read<sterna_session_state_t *>([&](auto out) {
          const auto said = detail::named(dims);
          return sterna_session_state_create(out, session.get(), said.size(), said.data());
      })) {}

} // namespace sterna

#endif
