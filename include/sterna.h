/*
 * Sterna: graph partitions on CPU, masked attention and Select, the ternary choice dst = cond ? then : else, at the cost
 * of what the mask leaves.
 *
 * The way of a graph: logical tensors and ops are described, ops are added to a graph, the graph is finalized and
 * filtered into partitions, each partition is compiled for concrete tensors and an engine, and executed on tensors,
 * which are logical tensors with memory, as often as one likes. A session goes this way for a graph as a whole: a graph
 * builder makes a model of values, and its session runs it by the names of inputs and outputs.
 *
 * Almost every function answers with a status, STERNA_STATUS_SUCCESS or what went wrong; what a call answers beside
 * that it writes to its last arguments, and to them only if it succeeds. sterna_last_error_message says in a sentence
 * what was wrong. Null where a pointer is needed, and a number out of its range, is STERNA_STATUS_INVALID_ARGUMENTS.
 *
 * An object that a function makes belongs to the caller and is given back to the _destroy function of its type, once.
 * Objects copy or keep what they need of others, so they may be destroyed in any order. What a function is given by a
 * plain pointer is borrowed for the call.
 *
 * What may be done from several threads at once is said with each type.
 *
 * This file is generated and not to be edited.
 */

#ifndef STERNA_H
#define STERNA_H

#include <stddef.h>
#include <stdint.h>

/**
 * Stands for a dim or a stride that is not known.
 */
#define STERNA_UNKNOWN_DIM INT64_MIN

/**
 * The largest rank of a tensor.
 */
#define STERNA_MAX_NDIMS 12

/**
 * The handle of a tensor that has memory of its own.
 */
#define STERNA_MEMORY_ALLOCATE ((void *)SIZE_MAX)

/**
 * The handle of a tensor that has no memory yet.
 */
#define STERNA_MEMORY_NONE NULL

/**
 * Statuses of calls.
 */
enum {
    STERNA_STATUS_SUCCESS = 0,
    STERNA_STATUS_OUT_OF_MEMORY = 1,
    STERNA_STATUS_INVALID_ARGUMENTS = 2,
    STERNA_STATUS_UNIMPLEMENTED = 3,
    STERNA_STATUS_LAST_IMPL_REACHED = 4,
    STERNA_STATUS_RUNTIME_ERROR = 5,
    STERNA_STATUS_NOT_REQUIRED = 6,
    STERNA_STATUS_INVALID_GRAPH = 7,
    STERNA_STATUS_INVALID_GRAPH_OP = 8,
    STERNA_STATUS_INVALID_SHAPE = 9,
    STERNA_STATUS_INVALID_DATA_TYPE = 10
};

/**
 * Types of elements.
 */
enum {
    STERNA_DATA_TYPE_UNDEF = 0,
    STERNA_DATA_TYPE_F16 = 1,
    STERNA_DATA_TYPE_BF16 = 2,
    STERNA_DATA_TYPE_F32 = 3,
    STERNA_DATA_TYPE_S32 = 4,
    STERNA_DATA_TYPE_S8 = 5,
    STERNA_DATA_TYPE_U8 = 6,
    STERNA_DATA_TYPE_F64 = 7,
    STERNA_DATA_TYPE_BOOLEAN = 8,
    STERNA_DATA_TYPE_F8_E5M2 = 9,
    STERNA_DATA_TYPE_F8_E4M3 = 10,
    STERNA_DATA_TYPE_S4 = 11,
    STERNA_DATA_TYPE_U4 = 12,
    STERNA_DATA_TYPE_E8M0 = 13,
    STERNA_DATA_TYPE_F4_E2M1 = 14,
    STERNA_DATA_TYPE_F4_E3M0 = 15,
    STERNA_DATA_TYPE_S64 = 16,
    STERNA_DATA_TYPE_S16 = 0x101,
    STERNA_DATA_TYPE_U16 = 0x102,
    STERNA_DATA_TYPE_U32 = 0x103,
    STERNA_DATA_TYPE_U64 = 0x104
};

/**
 * How elements lie in memory.
 */
enum {
    STERNA_LAYOUT_TYPE_UNDEF = 0,
    STERNA_LAYOUT_TYPE_ANY = 1,
    STERNA_LAYOUT_TYPE_STRIDED = 2,
    STERNA_LAYOUT_TYPE_OPAQUE = 3
};

/**
 * The life of a tensor's contents between executions.
 */
enum {
    STERNA_TENSOR_PROPERTY_UNDEF = 0,
    STERNA_TENSOR_PROPERTY_VARIABLE = 1,
    STERNA_TENSOR_PROPERTY_CONSTANT = 2,
    STERNA_TENSOR_PROPERTY_HOST_SCALAR = 3
};

/**
 * Kinds of ops.
 */
enum {
    STERNA_OP_ABS = 0,
    STERNA_OP_ABS_BACKWARD = 1,
    STERNA_OP_ADD = 2,
    STERNA_OP_AVG_POOL = 3,
    STERNA_OP_AVG_POOL_BACKWARD = 4,
    STERNA_OP_BATCH_NORM_TRAINING_BACKWARD = 5,
    STERNA_OP_BATCH_NORM_FORWARD_TRAINING = 6,
    STERNA_OP_BATCH_NORM_INFERENCE = 7,
    STERNA_OP_BIAS_ADD = 8,
    STERNA_OP_BIAS_ADD_BACKWARD = 9,
    STERNA_OP_CLAMP = 10,
    STERNA_OP_CLAMP_BACKWARD = 11,
    STERNA_OP_CONCAT = 12,
    STERNA_OP_CONVOLUTION = 13,
    STERNA_OP_CONVOLUTION_BACKWARD_DATA = 14,
    STERNA_OP_CONVOLUTION_BACKWARD_WEIGHTS = 15,
    STERNA_OP_CONV_TRANSPOSE = 16,
    STERNA_OP_CONV_TRANSPOSE_BACKWARD_DATA = 17,
    STERNA_OP_CONV_TRANSPOSE_BACKWARD_WEIGHTS = 18,
    STERNA_OP_DEQUANTIZE = 19,
    STERNA_OP_DIVIDE = 20,
    STERNA_OP_DYNAMIC_DEQUANTIZE = 21,
    STERNA_OP_DYNAMIC_QUANTIZE = 22,
    STERNA_OP_ELU = 23,
    STERNA_OP_ELU_BACKWARD = 24,
    STERNA_OP_END = 25,
    STERNA_OP_EXP = 26,
    STERNA_OP_GELU = 27,
    STERNA_OP_GELU_BACKWARD = 28,
    STERNA_OP_HARD_SWISH = 29,
    STERNA_OP_HARD_SWISH_BACKWARD = 30,
    STERNA_OP_INTERPOLATE = 31,
    STERNA_OP_INTERPOLATE_BACKWARD = 32,
    STERNA_OP_LAYER_NORM = 33,
    STERNA_OP_LAYER_NORM_BACKWARD = 34,
    STERNA_OP_LEAKY_RELU = 35,
    STERNA_OP_LOG = 36,
    STERNA_OP_LOG_SOFTMAX = 37,
    STERNA_OP_LOG_SOFTMAX_BACKWARD = 38,
    STERNA_OP_MATMUL = 39,
    STERNA_OP_MAXIMUM = 40,
    STERNA_OP_MAX_POOL = 41,
    STERNA_OP_MAX_POOL_BACKWARD = 42,
    STERNA_OP_MINIMUM = 43,
    STERNA_OP_MISH = 44,
    STERNA_OP_MISH_BACKWARD = 45,
    STERNA_OP_MULTIPLY = 46,
    STERNA_OP_PRELU = 47,
    STERNA_OP_PRELU_BACKWARD = 48,
    STERNA_OP_QUANTIZE = 49,
    STERNA_OP_RECIPROCAL = 50,
    STERNA_OP_REDUCE_L1 = 51,
    STERNA_OP_REDUCE_L2 = 52,
    STERNA_OP_REDUCE_MAX = 53,
    STERNA_OP_REDUCE_MEAN = 54,
    STERNA_OP_REDUCE_MIN = 55,
    STERNA_OP_REDUCE_PROD = 56,
    STERNA_OP_REDUCE_SUM = 57,
    STERNA_OP_RELU = 58,
    STERNA_OP_RELU_BACKWARD = 59,
    STERNA_OP_REORDER = 60,
    STERNA_OP_ROUND = 61,
    STERNA_OP_SIGMOID = 62,
    STERNA_OP_SIGMOID_BACKWARD = 63,
    STERNA_OP_SOFTMAX = 64,
    STERNA_OP_SOFTMAX_BACKWARD = 65,
    STERNA_OP_SOFTPLUS = 66,
    STERNA_OP_SOFTPLUS_BACKWARD = 67,
    STERNA_OP_SQRT = 68,
    STERNA_OP_SQRT_BACKWARD = 69,
    STERNA_OP_SQUARE = 70,
    STERNA_OP_SQUARED_DIFFERENCE = 71,
    STERNA_OP_STATIC_RESHAPE = 72,
    STERNA_OP_STATIC_TRANSPOSE = 73,
    STERNA_OP_SUBTRACT = 74,
    STERNA_OP_TANH = 75,
    STERNA_OP_TANH_BACKWARD = 76,
    STERNA_OP_TYPE_CAST = 77,
    STERNA_OP_WILDCARD = 78,
    STERNA_OP_HARD_SIGMOID = 79,
    STERNA_OP_HARD_SIGMOID_BACKWARD = 80,
    STERNA_OP_SELECT = 81,
    STERNA_OP_POW = 82,
    STERNA_OP_GROUP_NORM = 83,
    STERNA_OP_GEN_INDEX = 84,
    STERNA_OP_GREATER_EQUAL = 85,
    STERNA_OP_RMS_NORM = 86,
    STERNA_OP_DROPOUT = 87,
    STERNA_OP_EQUAL = 0x1000,
    STERNA_OP_NOT_EQUAL = 0x1001,
    STERNA_OP_LESS = 0x1002,
    STERNA_OP_LESS_EQUAL = 0x1003,
    STERNA_OP_GREATER = 0x1004,
    STERNA_OP_LOGICAL_AND = 0x1005,
    STERNA_OP_LOGICAL_OR = 0x1006,
    STERNA_OP_LOGICAL_XOR = 0x1007,
    STERNA_OP_LOGICAL_NOT = 0x1008,
    STERNA_OP_IS_NAN = 0x1009,
    STERNA_OP_IS_INF = 0x100a,
    STERNA_OP_IS_FINITE = 0x100b,
    STERNA_OP_IDENTITY = 0x100c,
    STERNA_OP_NEGATIVE = 0x100d,
    STERNA_OP_FLOOR = 0x100e,
    STERNA_OP_CEIL = 0x100f,
    STERNA_OP_FILL = 0x1010,
    STERNA_OP_CAST = 0x1011,
    STERNA_OP_MODULO = 0x1012,
    STERNA_OP_SIN = 0x1013,
    STERNA_OP_COS = 0x1014,
    STERNA_OP_SLICE = 0x1015,
    STERNA_OP_CUM_SUM = 0x1016,
    STERNA_OP_GATHER = 0x1017,
    STERNA_OP_GATHER_ELEMENTS = 0x1018,
    STERNA_OP_GATHER_ND = 0x1019,
    STERNA_OP_GATHER_BACKWARD = 0x101a,
    STERNA_OP_SCATTER_ELEMENTS = 0x101b,
    STERNA_OP_SCATTER_ND = 0x101c,
    STERNA_OP_TOP_K = 0x101d,
    STERNA_OP_ARG_MAX = 0x101e,
    STERNA_OP_ARG_MIN = 0x101f,
    STERNA_OP_PAGED_LOAD = 0x1020,
    STERNA_OP_CACHE_STORE = 0x1021,
    STERNA_OP_POWER = 0x1022
};

/**
 * Attributes of ops.
 */
enum {
    STERNA_ATTR_ALPHA = 1,
    STERNA_ATTR_BETA = 2,
    STERNA_ATTR_EPSILON = 3,
    STERNA_ATTR_MAX = 4,
    STERNA_ATTR_MIN = 5,
    STERNA_ATTR_MOMENTUM = 6,
    STERNA_ATTR_SCALES = 32,
    STERNA_ATTR_AXIS = 48,
    STERNA_ATTR_BEGIN_NORM_AXIS = 49,
    STERNA_ATTR_GROUPS = 50,
    STERNA_ATTR_AXES = 64,
    STERNA_ATTR_DILATIONS = 65,
    STERNA_ATTR_DST_SHAPE = 66,
    STERNA_ATTR_KERNEL = 67,
    STERNA_ATTR_ORDER = 68,
    STERNA_ATTR_OUTPUT_PADDING = 69,
    STERNA_ATTR_PADS_BEGIN = 70,
    STERNA_ATTR_PADS_END = 71,
    STERNA_ATTR_SHAPE = 72,
    STERNA_ATTR_SIZES = 73,
    STERNA_ATTR_SRC_SHAPE = 74,
    STERNA_ATTR_STRIDES = 75,
    STERNA_ATTR_WEIGHTS_SHAPE = 76,
    STERNA_ATTR_ZPS = 77,
    STERNA_ATTR_GROUP_SHAPE = 78,
    STERNA_ATTR_EXCLUDE_PAD = 96,
    STERNA_ATTR_KEEP_DIMS = 97,
    STERNA_ATTR_KEEP_STATS = 98,
    STERNA_ATTR_PER_CHANNEL_BROADCAST = 99,
    STERNA_ATTR_SPECIAL_ZERO = 100,
    STERNA_ATTR_TRANSPOSE_A = 101,
    STERNA_ATTR_TRANSPOSE_B = 102,
    STERNA_ATTR_USE_AFFINE = 103,
    STERNA_ATTR_USE_DST = 104,
    STERNA_ATTR_AUTO_BROADCAST = 128,
    STERNA_ATTR_AUTO_PAD = 129,
    STERNA_ATTR_COORDINATE_TRANSFORMATION_MODE = 130,
    STERNA_ATTR_DATA_FORMAT = 131,
    STERNA_ATTR_MODE = 132,
    STERNA_ATTR_QTYPE = 133,
    STERNA_ATTR_ROUNDING_TYPE = 134,
    STERNA_ATTR_WEIGHTS_FORMAT = 135,
    STERNA_ATTR_ACCUMULATION_MODE = 136,
    STERNA_ATTR_VALUE = 0x1000,
    STERNA_ATTR_STARTS = 0x1001,
    STERNA_ATTR_ENDS = 0x1002,
    STERNA_ATTR_STEPS = 0x1003,
    STERNA_ATTR_EXCLUSIVE = 0x1004,
    STERNA_ATTR_REVERSE = 0x1005,
    STERNA_ATTR_BATCH_DIMS = 0x1006,
    STERNA_ATTR_CLAMP_INDICES = 0x1007,
    STERNA_ATTR_REDUCTION = 0x1008,
    STERNA_ATTR_K = 0x1009,
    STERNA_ATTR_LARGEST = 0x100a,
    STERNA_ATTR_SELECT_LAST_INDEX = 0x100b
};

/**
 * How far floating-point arithmetic may be relaxed.
 */
enum {
    STERNA_FPMATH_MODE_STRICT = 0,
    STERNA_FPMATH_MODE_BF16 = 1,
    STERNA_FPMATH_MODE_F16 = 2,
    STERNA_FPMATH_MODE_ANY = 3,
    STERNA_FPMATH_MODE_TF32 = 4
};

/**
 * How a graph is cut into partitions.
 */
enum {
    STERNA_PARTITION_POLICY_FUSION = 1,
    STERNA_PARTITION_POLICY_DEBUG = 2
};

/**
 * Kinds of engines.
 */
enum {
    STERNA_ENGINE_KIND_ANY = 0,
    STERNA_ENGINE_KIND_CPU = 1,
    STERNA_ENGINE_KIND_GPU = 2
};

/**
 * Behaviours of streams.
 */
enum {
    STERNA_STREAM_FLAG_IN_ORDER = 1,
    STERNA_STREAM_FLAG_OUT_OF_ORDER = 2,
    STERNA_STREAM_FLAG_PROFILING = 4
};

/**
 * How wide the vectors of kernels are.
 */
enum {
    STERNA_LEVEL_PORTABLE = 0,
    STERNA_LEVEL_AVX2 = 1,
    STERNA_LEVEL_AVX512 = 2,
    STERNA_LEVEL_NEON = 3
};

/**
 * How exact partitions are.
 */
enum {
    STERNA_ACCURACY_EXACT = 0,
    STERNA_ACCURACY_ORDERED = 1,
    STERNA_ACCURACY_BOUNDED = 2
};

/**
 * What phases of compiled partitions compute.
 */
enum {
    STERNA_PHASE_KIND_MAP = 0,
    STERNA_PHASE_KIND_ROWS = 1,
    STERNA_PHASE_KIND_PACK = 2,
    STERNA_PHASE_KIND_GEMM = 3,
    STERNA_PHASE_KIND_ATTENTION = 4,
    STERNA_PHASE_KIND_CLASSIFY = 5,
    STERNA_PHASE_KIND_ATTENTION_BACKWARD = 6,
    STERNA_PHASE_KIND_LOOKUP = 7,
    STERNA_PHASE_KIND_TOP_K = 8,
    STERNA_PHASE_KIND_POOL = 9
};

/**
 * Forms of computation that plans take where they can.
 */
enum {
    STERNA_FAST_FORM_ATTENTION = 0,
    STERNA_FAST_FORM_DECODE = 1,
    STERNA_FAST_FORM_ATTENTION_BACKWARD = 2,
    STERNA_FAST_FORM_INTEGER_ATTENTION = 3,
    STERNA_FAST_FORM_INTEGER_PRODUCT = 4,
    STERNA_FAST_FORM_STORED_OPERAND = 5,
    STERNA_FAST_FORM_STORED_CACHE = 6,
    STERNA_FAST_FORM_REGISTERS = 7,
    STERNA_FAST_FORM_PAGED_CACHE = 8,
    STERNA_FAST_FORM_RAGGED = 9
};

/**
 * Reasons for which a plan did not take a fast form.
 */
enum {
    STERNA_FALLBACK_REASON_OTHER_OPS = 0,
    STERNA_FALLBACK_REASON_BIAS_OF_PRODUCT = 1,
    STERNA_FALLBACK_REASON_SOFTMAX_AXIS = 2,
    STERNA_FALLBACK_REASON_SHAPE_OF_SCORES = 3,
    STERNA_FALLBACK_REASON_SHAPE_OF_RESULT = 4,
    STERNA_FALLBACK_REASON_TRANSPOSED_WEIGHTS = 5,
    STERNA_FALLBACK_REASON_OPERAND_FORM = 6,
    STERNA_FALLBACK_REASON_COMPUTED_WEIGHTS = 7,
    STERNA_FALLBACK_REASON_COMPUTED_LOGITS = 8,
    STERNA_FALLBACK_REASON_INNER_USES = 9,
    STERNA_FALLBACK_REASON_SEVERAL_PRODUCTS = 10,
    STERNA_FALLBACK_REASON_SEVERAL_GRADIENTS = 11,
    STERNA_FALLBACK_REASON_NO_ELEMENTS = 12,
    STERNA_FALLBACK_REASON_STRIDED_ELEMENTS = 13,
    STERNA_FALLBACK_REASON_HALF_BYTES = 14,
    STERNA_FALLBACK_REASON_NO_STRIDES = 15,
    STERNA_FALLBACK_REASON_ELEMENT_TYPE = 16,
    STERNA_FALLBACK_REASON_SCALE_GROUPS = 17,
    STERNA_FALLBACK_REASON_TOO_MANY_SCALES = 18,
    STERNA_FALLBACK_REASON_ORDER_OF_SUMS = 19,
    STERNA_FALLBACK_REASON_SEVERAL_SCALES = 20,
    STERNA_FALLBACK_REASON_SCALE_AXIS = 21,
    STERNA_FALLBACK_REASON_SCALE_RANGE = 22,
    STERNA_FALLBACK_REASON_SUM_OVERFLOW = 23,
    STERNA_FALLBACK_REASON_OPERAND_NOT_QUANTIZED = 24,
    STERNA_FALLBACK_REASON_ROUNDING_OF_WEIGHTS = 25,
    STERNA_FALLBACK_REASON_TOO_MANY_KEYS = 26,
    STERNA_FALLBACK_REASON_CPU_LEVEL = 27,
    STERNA_FALLBACK_REASON_ODD_LENGTH = 28,
    STERNA_FALLBACK_REASON_CONVERTED_WEIGHTS = 29,
    STERNA_FALLBACK_REASON_COMPUTED_SCALES = 30,
    STERNA_FALLBACK_REASON_OTHER_MASKS = 31
};

/**
 * Sets of instructions.
 */
enum {
    STERNA_CPU_ISA_DEFAULT = 0,
    STERNA_CPU_ISA_SSE41 = 1,
    STERNA_CPU_ISA_AVX = 3,
    STERNA_CPU_ISA_AVX2 = 7,
    STERNA_CPU_ISA_AVX2_VNNI = 15,
    STERNA_CPU_ISA_AVX2_VNNI_2 = 31,
    STERNA_CPU_ISA_AVX512_CORE = 39,
    STERNA_CPU_ISA_AVX512_CORE_VNNI = 103,
    STERNA_CPU_ISA_AVX512_CORE_BF16 = 231,
    STERNA_CPU_ISA_AVX512_CORE_FP16 = 0x1ef,
    STERNA_CPU_ISA_AVX512_CORE_AMX = 0xfef,
    STERNA_CPU_ISA_AVX512_CORE_AMX_FP16 = 0x1fef
};

/**
 * Which graphs are written to files.
 */
enum {
    STERNA_DUMP_MODE_NONE = 0,
    STERNA_DUMP_MODE_SUBGRAPH = 1,
    STERNA_DUMP_MODE_GRAPH = 2
};

/**
 * Places of the diagonal of a causal mask.
 */
enum {
    STERNA_CAUSAL_NONE = 0,
    STERNA_CAUSAL_TOP_LEFT = 1,
    STERNA_CAUSAL_BOTTOM_RIGHT = 2,
    STERNA_CAUSAL_OFFSET = 3
};

/**
 * What true in a mask of attention says.
 */
enum {
    STERNA_MASK_TRUE_KEEPS = 0,
    STERNA_MASK_TRUE_MASKS = 1
};


/**
 * The source of the memory of an engine's tensors and of its scratch memory: two functions of the caller.
 *
 * Any thread may use it at any time. An engine copies the allocator, so it may be destroyed as soon as the
 * engine is made.
 */
typedef struct sterna_allocator_t sterna_allocator_t;

/**
 * A partition compiled for concrete tensors, to be executed any number of times.
 *
 * Functions that take it as `const` may be called from any number of threads at once; executions then run at
 * once. `sterna_partition_compile` and `sterna_compiled_partition_destroy` need sole access.
 */
typedef struct sterna_compiled_partition_t sterna_compiled_partition_t;

/**
 * An op that only its caller knows: the name by which a session finds what runs it, `domain::Name`, and its
 * attributes, each with a name.
 *
 * Functions that take it as `const` may be called from any number of threads at once, the others by one
 * thread at a time. What it is given to keeps a copy.
 */
typedef struct sterna_custom_node_t sterna_custom_node_t;

/**
 * A CPU with an allocator and a number of threads.
 *
 * Any thread may use it at any time. Streams, tensors and compiled partitions keep the parts of their engine
 * that they need, so the engine may be destroyed before they are. Tensors, streams and compiled partitions
 * of one engine do not mix with those of another.
 *
 * Worker threads start with the first execution that is worth more than one thread, and end after the last
 * of the engine, its streams, tensors and compiled partitions is destroyed. A process may fork while workers
 * live, if no other thread is inside a call at that moment: the child starts new workers.
 */
typedef struct sterna_engine_t sterna_engine_t;

/**
 * Ops linked by the ids of their tensors.
 *
 * Callers add ops, fix the graph by `sterna_graph_finalize`, cut it by `sterna_graph_filter`, and then read
 * its partitions. Functions that take the graph as `const` may be called from any number of threads at once,
 * the others by one thread at a time.
 */
typedef struct sterna_graph_t sterna_graph_t;

/**
 * Builds a graph from values, which are numbers: those of the tensors of the graph. Each op is checked when
 * it is added, against the schema of its kind and the shapes of its operands, so an error comes from the
 * call that makes it and names the values of that call.
 *
 * Use a builder from one thread at a time; different builders may be used at once. A value belongs to the
 * builder that gave it.
 */
typedef struct sterna_graph_builder_t sterna_graph_builder_t;

/**
 * A graph that runs as a whole: ops, the names of inputs and outputs, and constants.
 *
 * Functions that take it as `const` may be called from any number of threads at once, the others by one
 * thread at a time.
 */
typedef struct sterna_model_t sterna_model_t;

/**
 * One op of a graph: its kind, attributes, inputs and outputs.
 *
 * Callers build an op step by step; each call checks only its own values. `sterna_graph_add_op` checks the
 * op against the schema of its kind. Use an op from one thread at a time; different ops may be used at once.
 */
typedef struct sterna_op_t sterna_op_t;

/**
 * Ops of a graph that run as one, or one op that no kernel runs.
 *
 * Any thread may use it at any time. It does not need its graph any more.
 */
typedef struct sterna_partition_t sterna_partition_t;

/**
 * A model that runs as a whole, on inputs of any shapes that it allows.
 *
 * For each set of shapes that it meets, a session makes a plan, which it keeps: it infers the shape of every
 * tensor, cuts the graph into partitions, compiles them, and lays the tensors between them out in one block
 * of memory.
 *
 * Any thread may use it at any time, and any number of threads may run it at once. It does not need its
 * model any more, and keeps the parts of its engine that it needs.
 */
typedef struct sterna_session_t sterna_session_t;

/**
 * The state of one sequence of runs of a session whose options have links: the tensors that a run leaves for
 * the next one. A run writes its rows behind those that are there.
 *
 * Use a state from one thread at a time; any number of states of one session may be used at once. It does
 * not need its session to be alive.
 */
typedef struct sterna_session_state_t sterna_session_state_t;

/**
 * An order of executions on an engine. On a CPU it is synchronous: a call returns when its result is
 * written.
 *
 * Any thread may use it at any time; executions on one stream from several threads run at once.
 */
typedef struct sterna_stream_t sterna_stream_t;

/**
 * A description together with memory: the caller's, or memory that the tensor owns, from the allocator of
 * its engine.
 *
 * Executions only read it, so any number of threads may execute with it at once;
 * `sterna_tensor_set_data_handle` and `sterna_tensor_destroy` need sole access. It keeps the parts of its
 * engine that it needs.
 */
typedef struct sterna_tensor_t sterna_tensor_t;

/**
 * How the bits of a partition relate to those of its ops, each run as a separate partition, and to the exact
 * result: one of the `STERNA_ACCURACY_*` numbers.
 *
 * `exact`: the bits are those of the ops run one by one, and each element is computed on its own. `ordered`:
 * the bits are those of the ops run one by one; an op adds up many elements, in an order that depends on the
 * op, its types, its shapes and strides, and the CPU alone, and stays within a bound of the exact result.
 * `bounded`: the result stays within a bound of the exact one, but its bits may differ from those of the ops
 * run one by one.
 *
 * With layout `any`, an op alone may settle another layout, and with it another order of additions. The bits
 * are those of the ops with the layouts that the partition settled: those of its compiled inputs and
 * outputs, and row-major ones for the tensors inside.
 */
typedef int sterna_accuracy_t;

/**
 * The status of a call: one of the `STERNA_STATUS_*` numbers, 0 for success. They are those of
 * `dnnl_status_t`.
 */
typedef int sterna_status_t;

/**
 * Gives a block of at least `size` bytes (1 or more), or null if there is none. It should start at a
 * multiple of `alignment` (a power of two, 64 or more), but need not: a tensor uses a block as it is unless
 * its elements want more alignment than the block has. The library frees such a block, and a block for
 * scratch memory that is not aligned, at once; it then requests a block of `size` + `alignment` - 1 bytes
 * and aligns the memory inside it. The function is called from any thread that uses the engine, several at a
 * time.
 */
typedef void *(*sterna_allocator_malloc_t)(size_t size,
                                           size_t alignment);

/**
 * Frees a block, by the address that the other function gave. The function is called from any thread that
 * uses the engine, several at a time.
 */
typedef void (*sterna_allocator_free_t)(void *block);

/**
 * The type of the elements of a tensor: one of the `STERNA_DATA_TYPE_*` numbers. Those below 0x100 are those
 * of `dnnl_data_type_t`.
 */
typedef int sterna_data_type_t;

/**
 * The life of a tensor's contents between executions: one of the `STERNA_TENSOR_PROPERTY_*` numbers, which
 * are those of `dnnl_graph_tensor_property_t`.
 */
typedef int sterna_tensor_property_t;

/**
 * How the elements of a tensor lie in memory: one of the `STERNA_LAYOUT_TYPE_*` numbers, which are those of
 * `dnnl_graph_layout_type_t`.
 */
typedef int sterna_layout_type_t;

/**
 * The layout of the elements of a tensor; its layout type tells the field.
 */
typedef union {
    /**
     * Strided layout: elements from one index to the next along each dim.
     */
    int64_t strides[12];
    /**
     * Opaque layout: its name.
     */
    size_t layout_id;
} sterna_layout_t;

/**
 * The description of a tensor: id, type, shape and layout, without memory. The layout is that of
 * `dnnl_graph_logical_tensor_t`.
 *
 * It is a plain struct without hidden parts: it may be copied, and needs no destruction.
 */
typedef struct {
    /**
     * The id by which ops are linked.
     */
    size_t id;
    /**
     * The number of dims; -1 if it is unknown.
     */
    int ndims;
    /**
     * The dims; `STERNA_UNKNOWN_DIM` stands for one that is unknown.
     */
    int64_t dims[12];
    /**
     * The type of the elements.
     */
    sterna_data_type_t data_type;
    /**
     * The life of its contents between executions.
     */
    sterna_tensor_property_t property;
    /**
     * How the elements lie in memory.
     */
    sterna_layout_type_t layout_type;
    /**
     * Strides, or the name of an opaque layout.
     */
    sterna_layout_t layout;
} sterna_logical_tensor_t;

/**
 * Where the diagonal of a causal mask lies: one of the `STERNA_CAUSAL_*` numbers.
 *
 * A query i sees key j if j <= i + offset. At the top left the offset is 0; at the bottom right it is the
 * number of keys less the number of queries, as the graph describes them, which differ by at most 2^24; or
 * it is a tensor.
 */
typedef int sterna_causal_t;

/**
 * The meaning of true in a boolean mask for its pair of a query and a key: one of the `STERNA_MASK_TRUE_*`
 * numbers.
 */
typedef int sterna_mask_true_t;

/**
 * The options of `sterna_graph_add_attention`.
 *
 * Set all bytes to 0, then `struct_size` to the size of the struct, then what is wanted: 0 and null are the
 * defaults. Later versions of the library may add fields at the end; `struct_size` tells how many the caller
 * knows.
 */
typedef struct {
    /**
     * The size of this struct where the caller was compiled.
     */
    size_t struct_size;
    /**
     * The queries: dims [.., queries, d].
     */
    const sterna_logical_tensor_t *q;
    /**
     * The keys: dims [.., keys, d].
     */
    const sterna_logical_tensor_t *k;
    /**
     * The values: dims [.., keys, d_v].
     */
    const sterna_logical_tensor_t *v;
    /**
     * The result: dims [.., queries, d_v].
     */
    const sterna_logical_tensor_t *dst;
    /**
     * The id of the first op; the others follow it.
     */
    size_t first_op_id;
    /**
     * The id of the first tensor between the ops; the others follow it.
     */
    size_t first_tensor_id;
    /**
     * Numbers that are added to the scaled and capped scores; null for none.
     */
    const sterna_logical_tensor_t *bias;
    /**
     * Booleans that broadcast to the scores; null for none.
     */
    const sterna_logical_tensor_t *mask;
    /**
     * The offset of a causal mask, of type s32; null unless `causal` needs an offset.
     */
    const sterna_logical_tensor_t *offset;
    /**
     * Where maximum + ln(sum) of each query's scores goes, f32; null for nowhere.
     */
    const sterna_logical_tensor_t *stats;
    /**
     * The factor of the scores, a finite number; null for 1 / sqrt(d).
     */
    const float *scale;
    /**
     * Where the diagonal of a causal mask lies.
     */
    sterna_causal_t causal;
    /**
     * The meaning of true in `mask`.
     */
    sterna_mask_true_t mask_true;
    /**
     * The number of positions, its own included, that a query sees back, and ahead unless it is causal: from
     * 1 to 2^24; 0 for no window.
     */
    int64_t window;
    /**
     * The number of query heads that share a head of keys and values, from 1 on; 0 for 1.
     */
    int64_t groups;
    /**
     * The cap of the scaled scores, which become softcap * tanh(score / softcap): a finite
     * number above 0; 0 for none.
     */
    float softcap;
    /**
     * Unless 0, `k` has dims [.., d, keys].
     */
    int k_transposed;
    /**
     * Unless 0, a query all of whose keys are left out gets NaN instead of 0. One that has no keys to leave
     * out gets 0 either way.
     */
    int nan_without_keys;
    /**
     * The type of the scores, f32 or that of `q`; 0 for f32.
     */
    sterna_data_type_t score_type;
    /**
     * A score without a key for each query, which takes a share of the weights: f32, bf16 or f16, of dims
     * that broadcast to [.., queries, 1]; null for none.
     */
    const sterna_logical_tensor_t *sinks;
    /**
     * Of sequences that follow each other along the queries: the number of queries in front of each
     * sequence, and of all, of type s32 and dims [sequences + 1]; null, as `cu_seqlens_kv`, if there is one
     * sequence. A query sees keys of its own sequence alone; `causal`, which cannot be an offset, and
     * `window` count from its start, or from its end.
     */
    const sterna_logical_tensor_t *cu_seqlens_q;
    /**
     * The same along the keys; null if they lie in pages.
     */
    const sterna_logical_tensor_t *cu_seqlens_kv;
    /**
     * The slopes of ALiBi, which times the distance of its key are taken off each score: f32, of dims that
     * broadcast to the scores; null for none.
     */
    const sterna_logical_tensor_t *alibi;
    /**
     * The pages of each sequence in order, s32 or s64 of dims [batch, pages of each sequence]; null, as
     * `lengths`, if keys and values lie in no pages. `k` and `v` then are a whole cache, of dims [pages,
     * heads, rows of a page, d], and no partition copies what it reads of the cache.
     */
    const sterna_logical_tensor_t *block_table;
    /**
     * The number of keys of each sequence, s32 of one dim; at the bottom right, its last query sees the
     * last of them.
     */
    const sterna_logical_tensor_t *lengths;
    /**
     * The scales of keys that are s8, u8, s4 or u4, f32 or of the type of `q`: dims are those of `k`, with a
     * number of groups in place of d, each of which has a scale. Null if keys have the type of `q`. Beside
     * `block_table` scales and zero points lie in pages of their own.
     */
    const sterna_logical_tensor_t *k_scales;
    /**
     * Their zero points, s8, u8, s4, u4 or s32 of the dims of the scales; null for 0.
     */
    const sterna_logical_tensor_t *k_zero_points;
    /**
     * The same of values.
     */
    const sterna_logical_tensor_t *v_scales;
    /**
     * Their zero points; null for 0.
     */
    const sterna_logical_tensor_t *v_zero_points;
} sterna_attention_options_t;

/**
 * The options of `sterna_graph_add_attention_backward`.
 *
 * Set all bytes to 0, then `struct_size` to the size of the struct, then what is wanted; later versions of
 * the library may add fields at the end.
 */
typedef struct {
    /**
     * The size of this struct where the caller was compiled.
     */
    size_t struct_size;
    /**
     * The forward computation. With `stats`, its result and statistics are inputs of the gradients;
     * otherwise the SoftMax is computed again. The ids of ops and tensors start where these options say.
     */
    const sterna_attention_options_t *forward;
    /**
     * The gradient of the result, of the type of `q`.
     */
    const sterna_logical_tensor_t *d_dst;
    /**
     * The gradient of the queries; null if it is not wanted.
     */
    const sterna_logical_tensor_t *d_q;
    /**
     * The gradient of the keys; null if it is not wanted.
     */
    const sterna_logical_tensor_t *d_k;
    /**
     * The gradient of the values; null if it is not wanted.
     */
    const sterna_logical_tensor_t *d_v;
} sterna_attention_backward_options_t;

/**
 * Numbers of tiles of 64 queries × 64 keys of masked scores, by what enters SoftMax.
 */
typedef struct {
    /**
     * Tiles of −∞ alone, which are left out.
     */
    size_t masked;
    /**
     * Tiles of one finite number, which are left out if their weights are 0.
     */
    size_t constant;
    /**
     * Tiles between whose elements no condition and no mask decides.
     */
    size_t full;
    /**
     * All other tiles.
     */
    size_t partial;
} sterna_mask_tile_counts_t;

/**
 * Two tensors that may share one buffer: the output replaces the input. The layout is that of
 * `dnnl_graph_inplace_pair_t`.
 */
typedef struct {
    /**
     * The id of the input.
     */
    size_t input_id;
    /**
     * The id of the output.
     */
    size_t output_id;
} sterna_inplace_pair_t;

/**
 * The computation of a phase of a compiled partition: one of the `STERNA_PHASE_KIND_*` numbers.
 */
typedef int sterna_phase_kind_t;

/**
 * A form of computation that saves time or memory: one of the `STERNA_FAST_FORM_*` numbers.
 */
typedef int sterna_fast_form_t;

/**
 * The reason for which a plan did not take a fast form: one of the `STERNA_FALLBACK_REASON_*` numbers.
 */
typedef int sterna_fallback_reason_t;

/**
 * A fast form that a plan did not take.
 */
typedef struct {
    /**
     * The form; `sterna_fast_form_string` names it.
     */
    sterna_fast_form_t form;
    /**
     * The reason; `sterna_fallback_reason_string` names it.
     */
    sterna_fallback_reason_t reason;
    /**
     * The id of the op that would have had the form.
     */
    size_t op_id;
} sterna_fallback_t;

/**
 * The kind of device of an engine: one of the `STERNA_ENGINE_KIND_*` numbers, which are those of
 * `dnnl_engine_kind_t`. There is one engine, of kind `cpu` and index 0.
 */
typedef int sterna_engine_kind_t;

/**
 * A set of instructions: one of the `STERNA_CPU_ISA_*` numbers, which are those of `dnnl_cpu_isa_t`. Kernels
 * know three levels: `sse41` and `avx` run plain code; the numbers from `avx2` up to below `avx512_core` run
 * kernels for `avx2`, those from `avx512_core` on run kernels for `avx512_core`. Beside the last level,
 * kernels may use the instructions that `avx512_core_vnni`, `avx512_core_bf16` and `avx512_core_amx` add.
 */
typedef int sterna_cpu_isa_t;

/**
 * Which graphs are written to files: a sum of the `STERNA_DUMP_MODE_*` numbers, which are those of
 * `dnnl_graph_dump_mode_t`.
 */
typedef int sterna_dump_mode_t;

/**
 * The kind of an op: one of the `STERNA_OP_*` numbers. Those below 0x1000 are those of
 * `dnnl_graph_op_kind_t`.
 */
typedef int sterna_op_kind_t;

/**
 * An op of the partition that ran.
 */
typedef struct {
    /**
     * Its kind.
     */
    sterna_op_kind_t kind;
    /**
     * Its id.
     */
    size_t id;
} sterna_profiled_op_t;

/**
 * A phase that has run.
 */
typedef struct {
    /**
     * The number of ops of the partition.
     */
    size_t op_num;
    /**
     * The ops of the partition.
     */
    const sterna_profiled_op_t *ops;
    /**
     * The index of the phase among those of the compiled partition, from 0.
     */
    size_t index;
    /**
     * The number of phases of the compiled partition. Phases whose results are kept of an earlier execution
     * are left out.
     */
    size_t phase_num;
    /**
     * The computation of the phase; `sterna_phase_kind_string` names it.
     */
    sterna_phase_kind_t kind;
    /**
     * Its tasks.
     */
    size_t tasks;
    /**
     * The threads for which workers are woken.
     */
    size_t threads;
    /**
     * Bytes of the ports and internal buffers that it reads and writes, each as a whole and once.
     */
    size_t bytes;
    /**
     * Its floating-point operations, as `sterna_compiled_partition_get_phase_flops` says.
     */
    size_t flops;
    /**
     * The nanoseconds that it took.
     */
    uint64_t nanoseconds;
} sterna_phase_profile_t;

/**
 * Is told of a phase that has ended. The profile is valid during the call.
 */
typedef void (*sterna_profiler_phase_t)(void *user_data,
                                        const sterna_phase_profile_t *profile);

/**
 * An execution that has ended.
 */
typedef struct {
    /**
     * The number of ops of the partition.
     */
    size_t op_num;
    /**
     * The ops of the partition.
     */
    const sterna_profiled_op_t *ops;
    /**
     * Bytes that it reads and writes, each distinct element counted once.
     */
    size_t bytes;
    /**
     * Its floating-point operations, as `sterna_compiled_partition_get_flops` says.
     */
    size_t flops;
    /**
     * The nanoseconds that it took, with those of the calls that tell of its phases.
     */
    uint64_t nanoseconds;
} sterna_execution_profile_t;

/**
 * Is told of an execution that has ended. The profile is valid during the call.
 */
typedef void (*sterna_profiler_execution_t)(void *user_data,
                                            const sterna_execution_profile_t *profile);

/**
 * Functions of the caller that are told what the compiled partitions of an engine did. At least one of them
 * is not null.
 *
 * The calls come from the thread that executes, after the phase or the execution has ended, in the order of
 * the phases. Executions on several threads call at once, so that the functions guard what they share. What
 * they take is not part of the times of phases. An execution that fails is not told, but for the phases that
 * ended before. The functions must be callable, with their data, until the last execution of the engine has
 * ended. They must not throw exceptions of C++.
 */
typedef struct {
    /**
     * Is told of each phase; may be null.
     */
    sterna_profiler_phase_t phase;
    /**
     * Is told of each execution; may be null.
     */
    sterna_profiler_execution_t execution;
    /**
     * The first argument of both functions, which the library does not look at.
     */
    void *user_data;
} sterna_profiler_t;

/**
 * The options of `sterna_engine_create_with_options`.
 *
 * Set all bytes to 0, then `struct_size` to the size of the struct, then what is wanted: 0 and null are the
 * defaults. Later versions of the library may add fields at the end; `struct_size` tells how many the caller
 * knows.
 */
typedef struct {
    /**
     * The size of this struct where the caller was compiled.
     */
    size_t struct_size;
    /**
     * The source of the memory of tensors and of scratch memory, of which the engine makes a copy; null for
     * the system.
     */
    const sterna_allocator_t *allocator;
    /**
     * Functions that are told of each phase and each execution of the engine's compiled partitions. The
     * engine copies the functions and the address of their data. Null for none: nothing is measured.
     */
    const sterna_profiler_t *profiler;
    /**
     * The most threads of an execution, the caller's among them: 1 is the caller's alone; 0 for a thread for
     * each hardware thread. An engine has 1,024 at most; the environment may lower it.
     */
    size_t threads;
    /**
     * Unless 0, workers sleep at once after work. Otherwise they stay awake for some microseconds, so that
     * the next execution finds them awake, unless the environment variable `STERNA_STAY_AWAKE` is 0.
     */
    int sleep_at_once;
} sterna_engine_options_t;

/**
 * How wide the vectors of the kernels are: one of the `STERNA_LEVEL_*` numbers.
 */
typedef int sterna_level_t;

/**
 * How far floating-point arithmetic may be relaxed: one of the `STERNA_FPMATH_MODE_*` numbers, which are
 * those of `dnnl_fpmath_mode_t`. A graph carries its mode and writes it to JSON; it is computed as under
 * `strict` in every mode.
 */
typedef int sterna_fpmath_mode_t;

/**
 * How a graph is cut into partitions: one of the `STERNA_PARTITION_POLICY_*` numbers, which are those of
 * `dnnl_graph_partition_policy_t`.
 */
typedef int sterna_partition_policy_t;

/**
 * A function that gets the data of the caller back: nothing of what was lent with it is used any more. It
 * may be called from any thread.
 */
typedef void (*sterna_release_t)(void *user_data);

/**
 * An input or an output of a model: its names, the first of which is its own, and its tensor. The struct and
 * what it points to are lent for the call.
 */
typedef struct {
    /**
     * The names, UTF-8 that ends with a zero.
     */
    const char *const *names;
    /**
     * The number of names, at least 1.
     */
    size_t name_num;
    /**
     * The tensor, by the id that it has in the graph.
     */
    sterna_logical_tensor_t tensor;
} sterna_model_port_t;

/**
 * Makes the model for inputs of given shapes: `inputs` are those of the model that has this source, in their
 * order, with known dims. The new model has inputs and outputs of the same names and types; constants are
 * best the same memory each time. Errors are told as by the functions of an op of the caller's own. It may
 * be called from any thread.
 */
typedef int (*sterna_model_source_t)(void *user_data,
                                     size_t input_num,
                                     const sterna_model_port_t *inputs,
                                     sterna_model_t **model,
                                     char *message,
                                     size_t message_size);

/**
 * An attribute: one of the `STERNA_ATTR_*` numbers, which are those of `dnnl_graph_op_attr_t`.
 */
typedef int sterna_op_attr_t;

/**
 * Elements that a call reads, with dims and strides. The struct and what it points to are lent for the call.
 */
typedef struct {
    /**
     * The first element; may be null if there is none.
     */
    const void *data;
    /**
     * The type of the elements.
     */
    sterna_data_type_t data_type;
    /**
     * The number of dims; 0 for a scalar.
     */
    int32_t ndims;
    /**
     * The dims; null for a scalar.
     */
    const int64_t *dims;
    /**
     * The strides, which count elements; null if the layout is dense and row-major.
     */
    const int64_t *strides;
} sterna_view_t;

/**
 * Elements that a call writes, with dims and strides; otherwise as `sterna_view_t`.
 */
typedef struct {
    /**
     * The first element; may be null if there is none.
     */
    void *data;
    /**
     * The type of the elements.
     */
    sterna_data_type_t data_type;
    /**
     * The number of dims; 0 for a scalar.
     */
    int32_t ndims;
    /**
     * The dims; null for a scalar.
     */
    const int64_t *dims;
    /**
     * The strides, which count elements; null if the layout is dense and row-major.
     */
    const int64_t *strides;
} sterna_view_mut_t;

/**
 * Sets the dims of the outputs of an op for inputs of known types and dims. `outputs` are described as far
 * as the model says; the function writes `ndims` and `dims`. If it fails it answers with another status than
 * success, and may write a sentence of at most `message_size` bytes, its zero among them, to `message`. It
 * may be called from any thread.
 */
typedef int (*sterna_custom_infer_t)(void *user_data,
                                     const sterna_custom_node_t *node,
                                     size_t input_num,
                                     const sterna_logical_tensor_t *inputs,
                                     size_t output_num,
                                     sterna_logical_tensor_t *outputs,
                                     char *message,
                                     size_t message_size);

/**
 * Reads the inputs of an op and writes all elements of its outputs. Tensors between ops are row-major; one
 * that the caller of the session gives has the strides that it was given with. Errors are told as by the
 * function that infers. It may be called from any thread, several at a time.
 */
typedef int (*sterna_custom_run_t)(void *user_data,
                                   const sterna_custom_node_t *node,
                                   size_t input_num,
                                   const sterna_view_t *inputs,
                                   size_t output_num,
                                   const sterna_view_mut_t *outputs,
                                   char *message,
                                   size_t message_size);

/**
 * An op of the caller's own, which a session runs where no kernel does.
 *
 * Set all bytes to 0, then `struct_size` to the size of the struct, then the fields. The session copies
 * them.
 */
typedef struct {
    /**
     * The size of this struct where the caller was compiled.
     */
    size_t struct_size;
    /**
     * The name: `domain::Name` of a node, or the name of an op kind.
     */
    const char *name;
    /**
     * Infers the dims of outputs.
     */
    sterna_custom_infer_t infer;
    /**
     * Runs the op.
     */
    sterna_custom_run_t run;
    /**
     * The first argument of the functions.
     */
    void *user_data;
    /**
     * Called with `user_data` when the last session that has the op is destroyed; null if nothing is to be
     * done. It is not called if the session cannot be made.
     */
    sterna_release_t release;
} sterna_custom_op_t;

/**
 * Says that an output of a run is an input of the next one: a cache of keys or values, or a hidden state.
 *
 * Set all bytes to 0, then `struct_size` to the size of the struct, then the fields.
 */
typedef struct {
    /**
     * The size of this struct where the caller was compiled.
     */
    size_t struct_size;
    /**
     * The name of the input.
     */
    const char *past;
    /**
     * The name of the output.
     */
    const char *present;
    /**
     * The axis along which it grows, from the end if negative, if `has_axis` is not 0.
     */
    int64_t axis;
    /**
     * Unless 0, `axis` counts; otherwise it is the last dim that the model leaves open, and without one the
     * tensor does not grow and starts as zeros.
     */
    int has_axis;
    /**
     * The most rows along the axis, for which a state has memory from the start; 0 for memory that doubles
     * when it is used up.
     */
    size_t capacity;
    /**
     * The rows that are kept from run to run, the newest ones; 0 for all.
     */
    size_t window;
    /**
     * Unless 0, it does not grow and starts as zeros, whichever dims the model leaves open, such as the
     * batch of a recurrent layer; `has_axis` is then 0.
     */
    int is_fixed;
} sterna_state_link_t;

/**
 * The options of `sterna_session_create`.
 *
 * Set all bytes to 0, then `struct_size` to the size of the struct, then what is wanted: 0 and null are the
 * defaults. Later versions of the library may add fields at the end; `struct_size` tells how many the caller
 * knows.
 */
typedef struct {
    /**
     * The size of this struct where the caller was compiled.
     */
    size_t struct_size;
    /**
     * The number of sets of shapes whose plans are kept; 0 for 16, and more as long as they are small.
     */
    size_t shapes;
    /**
     * The number of blocks of memory that the session keeps for later runs, the largest ones: as many runs
     * at once allocate nothing but small results, and of large results that were destroyed as many blocks
     * for each output. 0 for 4.
     */
    size_t arenas;
    /**
     * The number of ops of the caller's own.
     */
    size_t op_num;
    /**
     * The ops of the caller's own; null if there are none.
     */
    const sterna_custom_op_t *const *ops;
    /**
     * How far floating-point arithmetic may be relaxed; 0 for as far as the graph says.
     */
    sterna_fpmath_mode_t fpmath_mode;
    /**
     * Unless 0, the floating-point math mode covers integers too.
     */
    int fpmath_apply_to_int;
    /**
     * The number of links from outputs to inputs of the next run.
     */
    size_t link_num;
    /**
     * The links; null if there are none.
     */
    const sterna_state_link_t *const *links;
    /**
     * Unless 0, the links that the names of inputs and outputs tell are added, such as the one from
     * `present.0.key` to `past_key_values.0.key`.
     */
    int find_states;
} sterna_session_options_t;

/**
 * The dims of an input, with its name.
 */
typedef struct {
    /**
     * The name of the input, UTF-8 that ends with a zero.
     */
    const char *name;
    /**
     * The number of dims; 0 for a scalar.
     */
    int32_t ndims;
    /**
     * The dims; null for a scalar.
     */
    const int64_t *dims;
} sterna_named_dims_t;

/**
 * Elements for an input of a session, with its name.
 */
typedef struct {
    /**
     * The name of the input, UTF-8 that ends with a zero.
     */
    const char *name;
    /**
     * The elements.
     */
    sterna_view_t view;
} sterna_named_view_t;

/**
 * Memory for an output of a session, with its name.
 */
typedef struct {
    /**
     * The name of the output, UTF-8 that ends with a zero.
     */
    const char *name;
    /**
     * The memory, which is dense and row-major.
     */
    sterna_view_mut_t view;
} sterna_named_view_mut_t;

/**
 * The behaviour of a stream: a sum of the `STERNA_STREAM_FLAG_*` numbers, which are those of
 * `dnnl_stream_flags_t`.
 */
typedef unsigned int sterna_stream_flags_t;

/**
 * A version of the library. The layout is that of `dnnl_version_t`.
 */
typedef struct {
    /**
     * Changes if programs have to change.
     */
    int major;
    /**
     * Changes if something is added.
     */
    int minor;
    /**
     * Changes if something is corrected.
     */
    int patch;
    /**
     * The version as text, with the name of the library.
     */
    const char *hash;
    /**
     * The runtime for CPUs: a thread pool, 8.
     */
    unsigned int cpu_runtime;
    /**
     * The runtime for GPUs: none, 0.
     */
    unsigned int gpu_runtime;
} sterna_version_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The name of an accuracy, such as `ordered`; null for a number that is none. The text is constant and must
 * not be freed.
 */
const char *sterna_accuracy_string(sterna_accuracy_t accuracy);

/**
 * Makes an allocator of two functions; if either is null, the allocator uses the memory of the system.
 *
 * The functions must be callable until the last engine, tensor and compiled partition that uses the
 * allocator is destroyed. They must not throw exceptions of C++.
 */
sterna_status_t sterna_allocator_create(sterna_allocator_t **allocator,
                                        sterna_allocator_malloc_t malloc_fn,
                                        sterna_allocator_free_t free_fn);

/**
 * Destroys an allocator; engines that were made with it keep its functions. Null is fine; destroying one
 * twice is an error of the caller.
 */
sterna_status_t sterna_allocator_destroy(sterna_allocator_t *allocator);

/**
 * Adds the ops of masked attention to a graph: MatMul, Multiply, Tanh, Add, GenIndex, comparisons, Select,
 * SoftMax, MatMul, as the options need them. They are ops like any other; constants are Fill ops. A query
 * that sees no key gets 0, unless `nan_without_keys` says otherwise.
 *
 * `op_num` and `tensor_num`, which may be null, receive how many ids the ops and the tensors between them
 * have taken, from `first_op_id` and `first_tensor_id` on. `invalid_arguments` for an option that is out of
 * its range, contradicts another, or needs a size that is unknown; `unimplemented` for one that this version
 * does not know; `invalid_graph_op` if an op id is taken; `invalid_graph` after `sterna_graph_finalize`.
 * After an error the graph is as it was.
 */
sterna_status_t sterna_graph_add_attention(sterna_graph_t *graph,
                                           const sterna_attention_options_t *options,
                                           size_t *op_num,
                                           size_t *tensor_num);

/**
 * Adds the ops of the gradients of masked attention to a graph: those of forward up to what enters the
 * SoftMax, the weights, and the products, sums and differences that lead to the gradients that are wanted.
 *
 * `op_num` and `tensor_num` are those of `sterna_graph_add_attention`, as are the errors;
 * `invalid_arguments` also if no gradient is wanted.
 */
sterna_status_t sterna_graph_add_attention_backward(sterna_graph_t *graph,
                                                    const sterna_attention_backward_options_t *options,
                                                    size_t *op_num,
                                                    size_t *tensor_num);

/**
 * Makes an object for `sterna_partition_compile` to fill.
 */
sterna_status_t sterna_compiled_partition_create(sterna_compiled_partition_t **compiled_partition,
                                                 const sterna_partition_t *partition);

/**
 * Destroys a compiled partition. Null is fine; destroying one twice is an error of the caller.
 */
sterna_status_t sterna_compiled_partition_destroy(sterna_compiled_partition_t *compiled_partition);

/**
 * Runs a compiled partition and returns when its outputs are written.
 *
 * Tensors are found by id, in any order; a tensor that is no port is ignored. Each tensor has memory for all
 * its elements, unless it is empty. During the call nobody writes to inputs, and nobody else uses outputs.
 * An output may be the very memory of an input if `sterna_compiled_partition_get_inplace_ports` names the
 * two.
 *
 * `invalid_arguments`, before anything is written, for a port without a tensor, a tensor without memory, of
 * another type, other dims, strides or another engine than was compiled for, a stream of another engine, and
 * for any other overlap. `out_of_memory` if the allocator of the engine gives no scratch memory.
 */
sterna_status_t sterna_compiled_partition_execute(const sterna_compiled_partition_t *compiled_partition,
                                                  const sterna_stream_t *stream,
                                                  size_t num_inputs,
                                                  const sterna_tensor_t *const *inputs,
                                                  size_t num_outputs,
                                                  const sterna_tensor_t *const *outputs);

/**
 * As `sterna_compiled_partition_execute`, with scratch memory from the caller: a tensor as
 * `sterna_compiled_partition_get_scratchpad_logical_tensor` describes it. During the call nobody else uses
 * its memory. If it is null, the library allocates.
 */
sterna_status_t sterna_compiled_partition_execute_with_scratchpad(const sterna_compiled_partition_t *compiled_partition,
                                                                  const sterna_stream_t *stream,
                                                                  size_t num_inputs,
                                                                  const sterna_tensor_t *const *inputs,
                                                                  size_t num_outputs,
                                                                  const sterna_tensor_t *const *outputs,
                                                                  const sterna_tensor_t *scratchpad);

/**
 * Describes the scratch memory that `sterna_compiled_partition_execute_with_scratchpad` takes: id SIZE_MAX,
 * type u8, one dim, which is the number of bytes and may be 0.
 */
sterna_status_t sterna_compiled_partition_get_scratchpad_logical_tensor(const sterna_compiled_partition_t *compiled_partition,
                                                                        sterna_logical_tensor_t *logical_tensor);

/**
 * Counts the tiles of masked scores that an execution with these inputs would leave out, and the others. All
 * counts are 0 if the partition has no attention, or if nothing masks its scores.
 *
 * Inputs are found by id, in any order. Only those from which the mask is computed are needed and read;
 * nothing else of the partition is computed. During the call nobody writes to them.
 *
 * `invalid_arguments` for an input that is needed and is missing, has no memory, or is of another type,
 * other dims, strides or another engine than was compiled for. `out_of_memory` if the allocator of the
 * engine gives no memory for the table of tiles.
 */
sterna_status_t sterna_compiled_partition_count_mask_tiles(const sterna_compiled_partition_t *compiled_partition,
                                                           size_t num_inputs,
                                                           const sterna_tensor_t *const *inputs,
                                                           sterna_mask_tile_counts_t *counts);

/**
 * Reads the tensor of a port as it was compiled, with its dims and strides. `invalid_arguments` for an id
 * that no port has.
 */
sterna_status_t sterna_compiled_partition_query_logical_tensor(const sterna_compiled_partition_t *compiled_partition,
                                                               size_t id,
                                                               sterna_logical_tensor_t *logical_tensor);

/**
 * As `sterna_compiled_partition_query_logical_tensor`, by the name that the port has in the schema of its
 * op, such as `cond` or `dst`. An input has the name of the first port of an op that takes it.
 * `invalid_arguments` for a name that no port, or more than one, has.
 */
sterna_status_t sterna_compiled_partition_query_logical_tensor_by_name(const sterna_compiled_partition_t *compiled_partition,
                                                                       const char *name,
                                                                       sterna_logical_tensor_t *logical_tensor);

/**
 * Reads the engine for which a compiled partition was compiled. The compiled partition owns the engine: the
 * caller does not destroy it, and it is valid until the compiled partition is destroyed or compiled anew.
 */
sterna_status_t sterna_compiled_partition_get_engine(const sterna_compiled_partition_t *compiled_partition,
                                                     sterna_engine_t **engine);

/**
 * Reads the pairs of an input and an output that may share one buffer. They belong to the compiled
 * partition, until it is destroyed or compiled anew; if there is none, the pointer is null.
 */
sterna_status_t sterna_compiled_partition_get_inplace_ports(const sterna_compiled_partition_t *compiled_partition,
                                                            size_t *num_inplace_pairs,
                                                            const sterna_inplace_pair_t **inplace_pairs);

/**
 * Describes what an execution does, phase by phase, as text whose form may change from version to version.
 * The caller frees the text by `sterna_string_destroy`.
 */
sterna_status_t sterna_compiled_partition_get_plan(const sterna_compiled_partition_t *compiled_partition,
                                                   char **text);

/**
 * Reads the bytes that an execution reads and writes, each distinct element counted once.
 */
sterna_status_t sterna_compiled_partition_get_bytes_moved(const sterna_compiled_partition_t *compiled_partition,
                                                          size_t *bytes);

/**
 * Reads the floating-point operations of an execution: two for each multiplication with its addition in a
 * product, one for each other function of an element. Those of branches that may be skipped count; moves,
 * comparisons and selects do not.
 */
sterna_status_t sterna_compiled_partition_get_flops(const sterna_compiled_partition_t *compiled_partition,
                                                    size_t *flops);

/**
 * Reads the bytes of scratch memory of each thread of an execution. Together with the internal buffers they
 * are the memory that `sterna_compiled_partition_get_scratchpad_logical_tensor` describes.
 */
sterna_status_t sterna_compiled_partition_get_scratch_per_thread(const sterna_compiled_partition_t *compiled_partition,
                                                                 size_t *bytes);

/**
 * Reads the bytes of the internal buffers of an execution, through which phases hand tensors to later ones.
 */
sterna_status_t sterna_compiled_partition_get_buffer_bytes(const sterna_compiled_partition_t *compiled_partition,
                                                           size_t *bytes);

/**
 * Reads the number of phases of an execution, each of which begins when the one before it has ended.
 */
sterna_status_t sterna_compiled_partition_get_phase_num(const sterna_compiled_partition_t *compiled_partition,
                                                        size_t *num);

/**
 * Reads what a phase computes. `index` is less than what `sterna_compiled_partition_get_phase_num` says.
 */
sterna_status_t sterna_compiled_partition_get_phase_kind(const sterna_compiled_partition_t *compiled_partition,
                                                         size_t index,
                                                         sterna_phase_kind_t *kind);

/**
 * Reads the number of tasks of a phase, which may run in any order and on any thread.
 */
sterna_status_t sterna_compiled_partition_get_phase_tasks(const sterna_compiled_partition_t *compiled_partition,
                                                          size_t index,
                                                          size_t *tasks);

/**
 * Reads the part of a phase in what `sterna_compiled_partition_get_flops` says.
 */
sterna_status_t sterna_compiled_partition_get_phase_flops(const sterna_compiled_partition_t *compiled_partition,
                                                          size_t index,
                                                          size_t *flops);

/**
 * Reads the bytes of scratch memory that a thread needs for a phase.
 */
sterna_status_t sterna_compiled_partition_get_phase_scratch(const sterna_compiled_partition_t *compiled_partition,
                                                            size_t index,
                                                            size_t *bytes);

/**
 * Reads the fast forms that the plan did not take, and why. They belong to the compiled partition, until it
 * is destroyed or compiled anew; if there is none, the pointer is null.
 */
sterna_status_t sterna_compiled_partition_get_fallbacks(const sterna_compiled_partition_t *compiled_partition,
                                                        size_t *num_fallbacks,
                                                        const sterna_fallback_t **fallbacks);

/**
 * Reads the capacity of the cache of plans of compiled partitions; 1024 unless it was set.
 */
sterna_status_t sterna_compiled_partition_cache_get_capacity(int *capacity);

/**
 * Sets the capacity of the cache of plans of compiled partitions, for the whole process; 0 keeps none.
 */
sterna_status_t sterna_compiled_partition_cache_set_capacity(int capacity);

/**
 * Reads whether constant tensors are cached: 1 if a kind of engine has a capacity, else 0.
 */
sterna_status_t sterna_constant_tensor_cache_get(int *flag);

/**
 * Sets whether constant tensors are cached: 0 sets every capacity to 0, a positive number sets each to the
 * size of the address space.
 */
sterna_status_t sterna_constant_tensor_cache_set(int flag);

/**
 * Reads the capacity of the cache of constant tensors for a kind of engine, in MiB: for `cpu`, unless it
 * was set, half of the memory that the process may use, or 64 if the system does not tell it.
 */
sterna_status_t sterna_constant_tensor_cache_get_capacity(sterna_engine_kind_t engine_kind,
                                                          size_t *size);

/**
 * Sets the capacity of the cache of constant tensors for a kind of engine, in MiB; 0 keeps nothing, and a
 * larger number than the size of the address space becomes that size.
 *
 * The first execution of a compiled partition packs what a product reads of inputs of property constant
 * alone, and later executions with the same addresses read the packed copy. So the contents must not change
 * as long as the compiled partition is in use. Another address means packing again. The copy belongs to the
 * compiled partition, and comes from its engine's allocator. If the capacity is used up or the allocator has
 * no memory, each execution packs for itself. If the capacity becomes less than what is kept, each compiled
 * partition gives its copy back when it is executed next, or destroyed.
 */
sterna_status_t sterna_constant_tensor_cache_set_capacity(sterna_engine_kind_t engine_kind,
                                                          size_t size);

/**
 * The instruction set that kernels may use: `sse41`, `avx2`, `avx512_core`, `avx512_core_vnni`,
 * `avx512_core_bf16` or `avx512_core_amx`; `default` on a machine other than x86-64. From this call on, it
 * is fixed.
 */
sterna_cpu_isa_t sterna_cpu_isa_get_effective(void);

/**
 * Caps the instruction set that kernels use, in the whole process. The cap can be set until the first engine
 * is made or the instruction set is read; afterwards the call returns `invalid_arguments`. `default` removes
 * the cap. The environment variable `STERNA_MAX_CPU_ISA` caps it too.
 */
sterna_status_t sterna_cpu_isa_set_max(sterna_cpu_isa_t isa);

/**
 * Makes a node of an op, `domain::Name`, without attributes. A session finds by this name what runs it.
 */
sterna_status_t sterna_custom_node_create(sterna_custom_node_t **node,
                                          const char *op_name);

/**
 * Destroys a node. Null is fine; destroying one twice is an error of the caller, as is destroying one that a
 * function of the caller was given.
 */
sterna_status_t sterna_custom_node_destroy(sterna_custom_node_t *node);

/**
 * Reads the name of the op of a node. The caller frees the text by `sterna_string_destroy`.
 */
sterna_status_t sterna_custom_node_get_op_name(const sterna_custom_node_t *node,
                                               char **op_name);

/**
 * Sets an attribute of floating-point numbers: one, or a list. The values are copied.
 */
sterna_status_t sterna_custom_node_set_attr_f32(sterna_custom_node_t *node,
                                                const char *name,
                                                const float *value,
                                                size_t value_len);

/**
 * Sets an attribute of integers: one, or a list. The values are copied. A truth value is the integer 0 or 1.
 */
sterna_status_t sterna_custom_node_set_attr_s64(sterna_custom_node_t *node,
                                                const char *name,
                                                const int64_t *value,
                                                size_t value_len);

/**
 * Sets an attribute that is text, which is copied.
 */
sterna_status_t sterna_custom_node_set_attr_str(sterna_custom_node_t *node,
                                                const char *name,
                                                const char *value);

/**
 * Reads an attribute of floating-point numbers: the address of its values, which the node owns, and their
 * number. `invalid_arguments` if the node has no such attribute, or one of another type.
 */
sterna_status_t sterna_custom_node_get_attr_f32(const sterna_custom_node_t *node,
                                                const char *name,
                                                const float **values,
                                                size_t *num);

/**
 * Reads an attribute of integers: the address of its values, which the node owns, and their number.
 * `invalid_arguments` if the node has no such attribute, or one of another type.
 */
sterna_status_t sterna_custom_node_get_attr_s64(const sterna_custom_node_t *node,
                                                const char *name,
                                                const int64_t **values,
                                                size_t *num);

/**
 * Reads an attribute that is text, which the caller frees by `sterna_string_destroy`. `invalid_arguments` if
 * the node has no such attribute, or one of another type.
 */
sterna_status_t sterna_custom_node_get_attr_str(const sterna_custom_node_t *node,
                                                const char *name,
                                                char **value);

/**
 * The name of a data type, such as `f32`; null for a number that is no type. The text is constant and must
 * not be freed.
 */
const char *sterna_data_type_string(sterna_data_type_t data_type);

/**
 * The bytes that one element of a data type takes; 0 for `undef` and for the 4-bit types, because two of
 * them share a byte.
 */
sterna_status_t sterna_data_type_get_size(sterna_data_type_t data_type,
                                          size_t *size);

/**
 * Sets which graphs are written to JSON files of the working directory: with `graph`, each graph that is cut
 * into partitions (`graph-<number>.json`), and again with the partition of each op when the partitions are
 * handed out (`graph-<number>-partitioning.json`); with `subgraph`, each partition that is compiled
 * (`graph-<partition>-<hash>.json`).
 *
 * Before the first call the environment variable `STERNA_GRAPH_DUMP` decides, or `ONEDNN_GRAPH_DUMP` if the
 * first one is not set: `graph`, `subgraph`, or both with a comma between them.
 */
sterna_status_t sterna_dump_mode_set(sterna_dump_mode_t mode);

/**
 * The number of engines of a kind: 1 for `cpu`, 0 for any other kind.
 */
size_t sterna_engine_get_count(sterna_engine_kind_t kind);

/**
 * Makes an engine with the memory of the system and a thread for each hardware thread.
 *
 * The environment variables `STERNA_NUM_THREADS` and, if that is not set, `OMP_NUM_THREADS` cap the threads
 * of every engine; they are read once.
 */
sterna_status_t sterna_engine_create(sterna_engine_t **engine,
                                     sterna_engine_kind_t kind,
                                     size_t index);

/**
 * Makes an engine, of kind `cpu`, with options.
 *
 * `invalid_arguments` for a profiler without a function; `unimplemented` for an option that this version
 * does not know.
 */
sterna_status_t sterna_engine_create_with_options(sterna_engine_t **engine,
                                                  const sterna_engine_options_t *options);

/**
 * Reads the kind of an engine: always `cpu`.
 */
sterna_status_t sterna_engine_get_kind(const sterna_engine_t *engine,
                                       sterna_engine_kind_t *kind);

/**
 * Reads how many threads an execution may use, the caller's among them.
 */
sterna_status_t sterna_engine_get_threads(const sterna_engine_t *engine,
                                          size_t *threads);

/**
 * Reads the level of the kernels that partitions compiled for the engine use.
 */
sterna_status_t sterna_engine_get_level(const sterna_engine_t *engine,
                                        sterna_level_t *level);

/**
 * Destroys an engine; streams, tensors and compiled partitions made with it stay usable. Null is fine;
 * destroying one twice is an error of the caller.
 */
sterna_status_t sterna_engine_destroy(sterna_engine_t *engine);

/**
 * The name of a fast form, such as `decode`; null for a number that is no form. The text is constant and
 * must not be freed.
 */
const char *sterna_fast_form_string(sterna_fast_form_t form);

/**
 * The name of a reason, such as `softmax_axis`; null for a number that is no reason. The text is constant
 * and must not be freed.
 */
const char *sterna_fallback_reason_string(sterna_fallback_reason_t reason);

/**
 * Reads the mode that graphs created without one get; `strict` unless it was set.
 */
sterna_status_t sterna_fpmath_mode_get_default(sterna_fpmath_mode_t *mode);

/**
 * Sets the mode that graphs created without one get from now on, in the whole process.
 */
sterna_status_t sterna_fpmath_mode_set_default(sterna_fpmath_mode_t mode);

/**
 * Makes a graph without ops, for engines of a kind, with the default floating-point math mode.
 */
sterna_status_t sterna_graph_create(sterna_graph_t **graph,
                                    sterna_engine_kind_t engine_kind);

/**
 * Makes a graph without ops, for engines of a kind, with a floating-point math mode.
 */
sterna_status_t sterna_graph_create_with_fpmath_mode(sterna_graph_t **graph,
                                                     sterna_engine_kind_t engine_kind,
                                                     sterna_fpmath_mode_t mode);

/**
 * Destroys a graph; partitions of it stay usable. Null is fine; destroying one twice is an error of the
 * caller.
 */
sterna_status_t sterna_graph_destroy(sterna_graph_t *graph);

/**
 * Sets the floating-point math mode of a graph, and whether it covers integers too (0: it does not). After
 * `sterna_graph_finalize`: `invalid_graph`.
 */
sterna_status_t sterna_graph_set_fpmath_mode(sterna_graph_t *graph,
                                             sterna_fpmath_mode_t mode,
                                             int apply_to_int);

/**
 * Reads the floating-point math mode of a graph, and whether it covers integers too: 1 or 0.
 */
sterna_status_t sterna_graph_get_fpmath_mode(const sterna_graph_t *graph,
                                             sterna_fpmath_mode_t *mode,
                                             int *apply_to_int);

/**
 * Turns a rewrite on (any number but 0) or off (0) for later calls of `sterna_graph_filter` and
 * `sterna_graph_explain`, by the name that the page on performance lists, such as `rms-norm`. All are on at
 * first; the setting may change after `sterna_graph_finalize`. `invalid_arguments` for a name that no
 * rewrite has.
 */
sterna_status_t sterna_graph_set_rewrite(sterna_graph_t *graph,
                                         const char *name,
                                         int is_on);

/**
 * Adds a copy of an op to a graph. `invalid_graph_op` if the op does not fit its kind (counts, types,
 * attributes; shapes are checked when a partition is compiled), or if its id is taken; `invalid_graph` after
 * `sterna_graph_finalize`.
 */
sterna_status_t sterna_graph_add_op(sterna_graph_t *graph,
                                    const sterna_op_t *op);

/**
 * Fixes a graph: links its ops by the ids of their tensors. A second call does nothing. `invalid_graph` for
 * a tensor with two producers, two descriptions of one tensor, and a cycle.
 */
sterna_status_t sterna_graph_finalize(sterna_graph_t *graph);

/**
 * Reads whether a graph has been fixed: 1 or 0.
 */
sterna_status_t sterna_graph_is_finalized(const sterna_graph_t *graph,
                                          uint8_t *is_finalized);

/**
 * Cuts a graph into partitions. A second call starts anew. `invalid_graph` before `sterna_graph_finalize`.
 */
sterna_status_t sterna_graph_filter(sterna_graph_t *graph,
                                    sterna_partition_policy_t policy);

/**
 * Reads how many partitions the last `sterna_graph_filter` found; 0 before the first.
 */
sterna_status_t sterna_graph_get_partition_num(const sterna_graph_t *graph,
                                               size_t *num);

/**
 * Hands out all partitions of a graph, in an order in which they can run. `num` is what
 * `sterna_graph_get_partition_num` says, and `partitions` has room for as many. Each call makes new objects,
 * which the caller destroys.
 */
sterna_status_t sterna_graph_get_partitions(const sterna_graph_t *graph,
                                            size_t num,
                                            sterna_partition_t **partitions);

/**
 * Reads a graph from `length` bytes of JSON, in the format in which oneDNN writes graphs. The ops are added,
 * the graph is not fixed yet. The message of an error names the line and the column, the op and the key.
 * Lists and objects are at most 128 deep.
 *
 * The kind of engine names the device of the dump. It is kept and written again; partitions run on CPU. Of a
 * tensor that an op of the graph produces, the producer's description counts; if a consumer's contradicted
 * it in anything but the type, `sterna_graph_get_json_notes` says so.
 */
sterna_status_t sterna_graph_from_json(sterna_graph_t **graph,
                                       const char *json,
                                       size_t length);

/**
 * Tells where `sterna_graph_from_json` differs from the JSON: one line for each consumer of a tensor whose
 * description gave way to the producer's, none if no description did. The caller frees the text by
 * `sterna_string_destroy`.
 */
sterna_status_t sterna_graph_get_json_notes(const sterna_graph_t *graph,
                                            char **text);

/**
 * Writes a graph as JSON, in the format in which oneDNN writes graphs. The text ends with a zero, and the
 * caller frees it by `sterna_string_destroy`. `length`, which may be null, receives its length without the
 * zero.
 */
sterna_status_t sterna_graph_to_json(const sterna_graph_t *graph,
                                     char **json,
                                     size_t *length);

/**
 * Tells why an op shares a partition with its neighbours or not: one line for each attempt of a fusion, none
 * without attempts. The caller frees the text by `sterna_string_destroy`. `invalid_arguments` for an id that
 * no op of the graph has, `invalid_graph` before `sterna_graph_finalize`.
 *
 * `sterna_partition_get_accuracy` says what becomes of the bits. With layout `any`, an op alone may settle
 * another layout, and with it another order of additions. The bits are those of the ops with the layouts
 * that the partition settled: those of its compiled inputs and outputs, and row-major ones for the tensors
 * inside.
 */
sterna_status_t sterna_graph_explain(const sterna_graph_t *graph,
                                     size_t op_id,
                                     char **text);

/**
 * Makes a builder of an empty graph.
 */
sterna_status_t sterna_graph_builder_create(sterna_graph_builder_t **builder);

/**
 * Destroys a builder; models that it gave stay usable. Null is fine; destroying one twice is an error of the
 * caller.
 */
sterna_status_t sterna_graph_builder_destroy(sterna_graph_builder_t *builder);

/**
 * Adds an input of a name to a graph; a dim may be `STERNA_UNKNOWN_DIM`.
 */
sterna_status_t sterna_graph_builder_add_input(sterna_graph_builder_t *builder,
                                               const char *name,
                                               sterna_data_type_t data_type,
                                               int32_t ndims,
                                               const int64_t *dims,
                                               size_t *value);

/**
 * Adds a constant of `size` bytes in row-major order to a graph.
 *
 * If `release` is null, the bytes are copied. Otherwise they stay as and where they are until the function
 * is called with `user_data`, once, after the builder, the model and the last session of it are destroyed;
 * after an error of this call it is not called.
 */
sterna_status_t sterna_graph_builder_add_constant(sterna_graph_builder_t *builder,
                                                  const char *name,
                                                  sterna_data_type_t data_type,
                                                  int32_t ndims,
                                                  const int64_t *dims,
                                                  const void *data,
                                                  size_t size,
                                                  sterna_release_t release,
                                                  void *user_data,
                                                  size_t *value);

/**
 * Adds an op to a graph: the kind, the attributes and the name of `op`, which has no inputs and outputs of
 * its own. Its operands are values, and `output_values` receives the values of as many outputs as asked for.
 *
 * Types and shapes of outputs follow; `output_data_type` is the type of those that have none from their
 * operands, such as the result of Cast, or `STERNA_DATA_TYPE_UNDEF`. The errors are those of
 * `sterna_graph_add_op`, and `invalid_shape`.
 */
sterna_status_t sterna_graph_builder_add_op(sterna_graph_builder_t *builder,
                                            const sterna_op_t *op,
                                            size_t input_num,
                                            const size_t *input_values,
                                            sterna_data_type_t output_data_type,
                                            size_t output_num,
                                            size_t *output_values);

/**
 * Adds an op that only the caller knows to a graph. `outputs` describe the results: their types, and their
 * dims unless the rank is -1; nothing else of them counts.
 */
sterna_status_t sterna_graph_builder_add_custom(sterna_graph_builder_t *builder,
                                                const sterna_custom_node_t *node,
                                                size_t input_num,
                                                const size_t *input_values,
                                                size_t output_num,
                                                const sterna_logical_tensor_t *const *outputs,
                                                size_t *output_values);

/**
 * Adds masked attention to a graph. The ids of the tensors in the options are values; their descriptions are
 * what `sterna_graph_builder_get_logical_tensor` reads. `dst` may be null, and neither it nor the first ids
 * count. `value` receives the result, which has the type of the queries.
 */
sterna_status_t sterna_graph_builder_add_attention(sterna_graph_builder_t *builder,
                                                   const sterna_attention_options_t *options,
                                                   size_t *value);

/**
 * Reads the description of a value: its type, its dims as far as they are known, and as its id the value.
 */
sterna_status_t sterna_graph_builder_get_logical_tensor(const sterna_graph_builder_t *builder,
                                                        size_t value,
                                                        sterna_logical_tensor_t *logical_tensor);

/**
 * Names an output of a graph. Any value may be one, also an input or a constant.
 */
sterna_status_t sterna_graph_builder_add_output(sterna_graph_builder_t *builder,
                                                const char *name,
                                                size_t value);

/**
 * Makes the model of a graph, and empties the builder. Without named outputs, they are the values that no op
 * uses, called by the names of their ops. `invalid_graph` if the ops make no graph.
 */
sterna_status_t sterna_graph_builder_build(sterna_graph_builder_t *builder,
                                           sterna_model_t **model);

/**
 * The error of the last failed call on this thread: one sentence that names the op, the port and the values
 * that clash; empty if no call has failed. A successful call does not change it. The text is UTF-8, belongs
 * to the library, and stays valid until the next failed call on this thread.
 */
const char *sterna_last_error_message(void);

/**
 * The name of a level, such as `avx2`; null for a number that is no level. The text is constant and must not
 * be freed.
 */
const char *sterna_level_string(sterna_level_t level);

/**
 * Describes a tensor whose dims are unknown; with `ndims` -1 the rank is unknown too. Rank 0 is a scalar.
 * Dims and strides are all set to `STERNA_UNKNOWN_DIM`, those of a scalar to 0.
 *
 * A host scalar has rank 0 and the type s32, s64 or f32.
 */
sterna_status_t sterna_logical_tensor_init(sterna_logical_tensor_t *logical_tensor,
                                           size_t id,
                                           sterna_data_type_t data_type,
                                           int32_t ndims,
                                           sterna_layout_type_t layout_type,
                                           sterna_tensor_property_t property);

/**
 * Describes a tensor of given dims; a dim may be `STERNA_UNKNOWN_DIM`. If all dims are known and the layout
 * is strided, the tensor is dense and row-major; otherwise all strides are `STERNA_UNKNOWN_DIM`. For rank 0,
 * `dims` may be null. Dims behind the last one are 0.
 */
sterna_status_t sterna_logical_tensor_init_with_dims(sterna_logical_tensor_t *logical_tensor,
                                                     size_t id,
                                                     sterna_data_type_t data_type,
                                                     int32_t ndims,
                                                     const int64_t *dims,
                                                     sterna_layout_type_t layout_type,
                                                     sterna_tensor_property_t property);

/**
 * Describes a strided tensor of given dims and strides, which count elements and are not negative. For rank
 * 0 both may be null. Dims and strides behind the last one are 0.
 */
sterna_status_t sterna_logical_tensor_init_with_strides(sterna_logical_tensor_t *logical_tensor,
                                                        size_t id,
                                                        sterna_data_type_t data_type,
                                                        int32_t ndims,
                                                        const int64_t *dims,
                                                        const int64_t *strides,
                                                        sterna_tensor_property_t property);

/**
 * Reads the bytes of memory that a tensor needs: the largest dim * stride, at least one element; 0 if any
 * dim is 0. It is SIZE_MAX if the layout is not strided or something is unknown, and 0 for a strided tensor
 * of unknown rank.
 */
sterna_status_t sterna_logical_tensor_get_mem_size(const sterna_logical_tensor_t *logical_tensor,
                                                   size_t *size);

/**
 * Tells whether two descriptions are equal in id, type, rank, dims, layout, strides and property: 1 or 0.
 */
sterna_status_t sterna_logical_tensor_is_equal(const sterna_logical_tensor_t *left,
                                               const sterna_logical_tensor_t *right,
                                               uint8_t *is_equal);

/**
 * Makes a model of a copy of a graph, whose inputs and outputs are called by the numbers of their tensors:
 * "7". The outputs are the tensors that no op uses, and those of ops End. `invalid_graph` as
 * `sterna_graph_finalize`.
 */
sterna_status_t sterna_model_create(sterna_model_t **model,
                                    const sterna_graph_t *graph);

/**
 * Makes a model of a copy of a graph, with names for its inputs and outputs, in the order given. An output
 * may also be a tensor that ops use, an input or a constant. `invalid_graph` as `sterna_graph_finalize`.
 */
sterna_status_t sterna_model_create_with_ports(sterna_model_t **model,
                                               const sterna_graph_t *graph,
                                               size_t input_num,
                                               const sterna_model_port_t *input_ports,
                                               size_t output_num,
                                               const sterna_model_port_t *output_ports);

/**
 * Makes a model that a function of the caller's makes anew for each set of shapes of inputs, as a file does
 * in which the shapes of ops follow from those of the inputs. A dim that may have any length is
 * `STERNA_UNKNOWN_DIM`.
 *
 * `release`, which may be null, is called with `user_data`, once, after the model and the last session of it
 * are destroyed; after an error of this call it is not called.
 */
sterna_status_t sterna_model_create_from_source(sterna_model_t **model,
                                                size_t input_num,
                                                const sterna_model_port_t *input_ports,
                                                size_t output_num,
                                                const sterna_model_port_t *output_ports,
                                                sterna_model_source_t source,
                                                sterna_release_t release,
                                                void *user_data);

/**
 * Destroys a model; sessions of it stay usable. Null is fine; destroying one twice is an error of the
 * caller.
 */
sterna_status_t sterna_model_destroy(sterna_model_t *model);

/**
 * Gives a tensor that no op computes its value, once and for all: `size` bytes in row-major order. It is no
 * input any more.
 *
 * If `release` is null, the bytes are copied. Otherwise they stay as and where they are until the function
 * is called with `user_data`, once, after the model and the last session of it are destroyed; after an error
 * of this call it is not called.
 */
sterna_status_t sterna_model_set_constant(sterna_model_t *model,
                                          size_t tensor_id,
                                          const void *data,
                                          size_t size,
                                          sterna_release_t release,
                                          void *user_data);

/**
 * Says what an op Wildcard of a model stands for.
 */
sterna_status_t sterna_model_set_custom_node(sterna_model_t *model,
                                             size_t op_id,
                                             const sterna_custom_node_t *node);

/**
 * Reads how many inputs a model has.
 */
sterna_status_t sterna_model_get_input_num(const sterna_model_t *model,
                                           size_t *num);

/**
 * Reads the name and the description of an input of a model. The text is the model's, until the model is
 * changed or destroyed.
 */
sterna_status_t sterna_model_get_input(const sterna_model_t *model,
                                       size_t index,
                                       const char **name,
                                       sterna_logical_tensor_t *logical_tensor);

/**
 * Reads how many outputs a model has.
 */
sterna_status_t sterna_model_get_output_num(const sterna_model_t *model,
                                            size_t *num);

/**
 * Reads the name and the description of an output of a model. The text is the model's, until the model is
 * changed or destroyed.
 */
sterna_status_t sterna_model_get_output(const sterna_model_t *model,
                                        size_t index,
                                        const char **name,
                                        sterna_logical_tensor_t *logical_tensor);

/**
 * The name of an op kind, such as `Select`; null for a number that is no kind. The text is constant and must
 * not be freed.
 */
const char *sterna_op_kind_string(sterna_op_kind_t kind);

/**
 * Makes an op without attributes, inputs or outputs. The name, for people to read, is UTF-8; an empty one
 * becomes the kind and the id.
 */
sterna_status_t sterna_op_create(sterna_op_t **op,
                                 size_t id,
                                 sterna_op_kind_t kind,
                                 const char *verbose_name);

/**
 * Destroys an op; graphs that contain it keep a copy. Null is fine; destroying one twice is an error of the
 * caller.
 */
sterna_status_t sterna_op_destroy(sterna_op_t *op);

/**
 * Adds the next input to an op; the description is copied.
 */
sterna_status_t sterna_op_add_input(sterna_op_t *op,
                                    const sterna_logical_tensor_t *input);

/**
 * Adds the next output to an op; the description is copied.
 */
sterna_status_t sterna_op_add_output(sterna_op_t *op,
                                     const sterna_logical_tensor_t *output);

/**
 * Sets an attribute of numbers: one value for an attribute that is a number, else a list. The values are
 * copied.
 */
sterna_status_t sterna_op_set_attr_f32(sterna_op_t *op,
                                       sterna_op_attr_t attr,
                                       const float *value,
                                       size_t value_len);

/**
 * Sets a boolean attribute: 0 is false, any other byte is true. `value_len` is 1.
 */
sterna_status_t sterna_op_set_attr_bool(sterna_op_t *op,
                                        sterna_op_attr_t attr,
                                        const uint8_t *value,
                                        size_t value_len);

/**
 * Sets an attribute of integers: one value for an attribute that is an integer, else a list. The values are
 * copied.
 */
sterna_status_t sterna_op_set_attr_s64(sterna_op_t *op,
                                       sterna_op_attr_t attr,
                                       const int64_t *value,
                                       size_t value_len);

/**
 * Sets an attribute that is a word; the text ends with a zero and is copied. `value_len` must not be 0; its
 * value is not used.
 */
sterna_status_t sterna_op_set_attr_str(sterna_op_t *op,
                                       sterna_op_attr_t attr,
                                       const char *value,
                                       size_t value_len);

/**
 * Reads the id of an op.
 */
sterna_status_t sterna_op_get_id(const sterna_op_t *op,
                                 size_t *id);

/**
 * Reads the kind of an op.
 */
sterna_status_t sterna_op_get_kind(const sterna_op_t *op,
                                   sterna_op_kind_t *kind);

/**
 * Makes a partition of one op, without a graph. `invalid_graph_op` if the op does not fit its kind.
 */
sterna_status_t sterna_partition_create_with_op(sterna_partition_t **partition,
                                                const sterna_op_t *op,
                                                sterna_engine_kind_t engine_kind);

/**
 * Destroys a partition; compiled partitions made from it stay usable. Null is fine; destroying one twice is
 * an error of the caller.
 */
sterna_status_t sterna_partition_destroy(sterna_partition_t *partition);

/**
 * Reads how many ops a partition has.
 */
sterna_status_t sterna_partition_get_op_num(const sterna_partition_t *partition,
                                            size_t *num);

/**
 * Reads the ids of the ops of a partition, in an order in which they can run. `num` is what
 * `sterna_partition_get_op_num` says, and `ids` has room for as many.
 */
sterna_status_t sterna_partition_get_ops(const sterna_partition_t *partition,
                                         size_t num,
                                         size_t *ids);

/**
 * Reads the index of a partition among the partitions of its graph, from 0.
 */
sterna_status_t sterna_partition_get_id(const sterna_partition_t *partition,
                                        size_t *id);

/**
 * Reads how many tensors a partition takes.
 */
sterna_status_t sterna_partition_get_input_ports_num(const sterna_partition_t *partition,
                                                     size_t *num);

/**
 * Reads the tensors that a partition takes, each once. `num` is what `sterna_partition_get_input_ports_num`
 * says, and `inputs` has room for as many.
 */
sterna_status_t sterna_partition_get_input_ports(const sterna_partition_t *partition,
                                                 size_t num,
                                                 sterna_logical_tensor_t *inputs);

/**
 * Reads how many tensors a partition gives.
 */
sterna_status_t sterna_partition_get_output_ports_num(const sterna_partition_t *partition,
                                                      size_t *num);

/**
 * Reads the tensors that a partition gives, each once. `num` is what `sterna_partition_get_output_ports_num`
 * says, and `outputs` has room for as many.
 */
sterna_status_t sterna_partition_get_output_ports(const sterna_partition_t *partition,
                                                  size_t num,
                                                  sterna_logical_tensor_t *outputs);

/**
 * Reads whether a partition can be compiled: 1 or 0.
 */
sterna_status_t sterna_partition_is_supported(const sterna_partition_t *partition,
                                              uint8_t *is_supported);

/**
 * Reads how exact a partition is. `invalid_arguments` for a partition that is not supported.
 */
sterna_status_t sterna_partition_get_accuracy(const sterna_partition_t *partition,
                                              sterna_accuracy_t *accuracy);

/**
 * Says why a partition cannot be compiled; null if it can. The caller frees the text by
 * `sterna_string_destroy`.
 */
sterna_status_t sterna_partition_get_unsupported_reason(const sterna_partition_t *partition,
                                                        char **text);

/**
 * Reads the kind of engine that a partition is for: always `cpu`.
 */
sterna_status_t sterna_partition_get_engine_kind(const sterna_partition_t *partition,
                                                 sterna_engine_kind_t *kind);

/**
 * Compiles a partition for concrete tensors and an engine.
 *
 * The tensors have the ids of the ports, in any order; a tensor that is no port is ignored. Inputs have
 * known dims and strides. The dims of an output may be unknown, and its layout may be `any`;
 * `sterna_compiled_partition_query_logical_tensor` then tells dims and strides.
 *
 * `invalid_arguments` for a partition that is not supported, a port without a tensor, an input whose dims or
 * strides are not known, and an output whose strides overlap; `invalid_data_type` for a type that differs
 * from the type in the graph; `invalid_shape` for shapes that clash, and for a value of more bytes than can
 * be addressed; of a product, a row or attention, of more than 2^48 elements.
 */
sterna_status_t sterna_partition_compile(const sterna_partition_t *partition,
                                         sterna_compiled_partition_t *compiled_partition,
                                         size_t in_num,
                                         const sterna_logical_tensor_t *const *inputs,
                                         size_t out_num,
                                         const sterna_logical_tensor_t *const *outputs,
                                         const sterna_engine_t *engine);

/**
 * The name of a kind of phase, such as `gemm`; null for a number that is no kind. The text is constant and
 * must not be freed.
 */
const char *sterna_phase_kind_string(sterna_phase_kind_t kind);

/**
 * Computes `dst[i] = cond[i] ? then[i] : else_[i]` in one call, without graph, partition, engine and
 * tensors. `then` and `else_` broadcast to each other, `cond` to both (auto_broadcast `numpy`); `dst` has
 * the dims of the result, which `sterna_select_get_dims` tells.
 *
 * `cond` is boolean, bytes that are true if they are not 0; `then`, `else_` and `dst` share one type of
 * whole bytes. During the call nobody writes to the elements of inputs, and nobody else uses those of `dst`;
 * `dst` may be the very elements of `then` or `else_`, if dims and strides are equal.
 *
 * It runs on an engine that the process shares, which the first call makes, and whose workers live as long
 * as the process: a program that unloads this library gives an engine of its own to `sterna_select_with`.
 * The first call for some types, dims and strides compiles a partition; later calls find it in the cache.
 *
 * `invalid_arguments` for a view whose type, dims or strides make no tensor, without memory, and for any
 * other overlap; `invalid_graph_op` if `cond` is not boolean or the types of the others differ;
 * `invalid_shape` if the dims do not broadcast, or `dst` has others than the result.
 */
sterna_status_t sterna_select(const sterna_view_t *cond,
                              const sterna_view_t *then,
                              const sterna_view_t *else_,
                              const sterna_view_mut_t *dst);

/**
 * As `sterna_select`, on an engine, and with the shapes combined by the broadcast mode of a name: `none`,
 * `numpy`, `pdpd` or `multidirectional`. Under `pdpd`, `axis` is the dim of `then` at which the other
 * operands start; -1 stands for no axis. If `engine` is null, it is that of `sterna_select`; if
 * `auto_broadcast` is null, the mode is `numpy`.
 */
sterna_status_t sterna_select_with(const sterna_engine_t *engine,
                                   const char *auto_broadcast,
                                   int64_t axis,
                                   const sterna_view_t *cond,
                                   const sterna_view_t *then,
                                   const sterna_view_t *else_,
                                   const sterna_view_mut_t *dst);

/**
 * Reads the dims of the result that `sterna_select_with` would write for these operands, whose elements it
 * does not read. `dims` has room for `STERNA_MAX_NDIMS` numbers, of which the first `ndims` are written.
 */
sterna_status_t sterna_select_get_dims(const char *auto_broadcast,
                                       int64_t axis,
                                       const sterna_view_t *cond,
                                       const sterna_view_t *then,
                                       const sterna_view_t *else_,
                                       int32_t *ndims,
                                       int64_t *dims);

/**
 * Makes a session of a model on an engine; `options` may be null. A model whose shapes are all known is
 * compiled here.
 *
 * `unimplemented` with every op that nothing runs; `invalid_arguments` for two inputs or outputs of one
 * name, and for a constant that is too short; `invalid_graph` for a tensor that nothing gives; the errors of
 * `sterna_partition_compile`.
 */
sterna_status_t sterna_session_create(sterna_session_t **session,
                                      const sterna_model_t *model,
                                      sterna_engine_t *engine,
                                      const sterna_session_options_t *options);

/**
 * Destroys a session. Null is fine; destroying one twice, or while it runs, is an error of the caller.
 */
sterna_status_t sterna_session_destroy(sterna_session_t *session);

/**
 * Reads how many inputs a session has.
 */
sterna_status_t sterna_session_get_input_num(const sterna_session_t *session,
                                             size_t *num);

/**
 * Reads the name and the description of an input of a session. The text is the session's.
 */
sterna_status_t sterna_session_get_input(const sterna_session_t *session,
                                         size_t index,
                                         const char **name,
                                         sterna_logical_tensor_t *logical_tensor);

/**
 * Reads how many outputs a session has.
 */
sterna_status_t sterna_session_get_output_num(const sterna_session_t *session,
                                              size_t *num);

/**
 * Reads the name and the description of an output of a session, as far as it is known for inputs of all
 * shapes. The text is the session's.
 */
sterna_status_t sterna_session_get_output(const sterna_session_t *session,
                                          size_t index,
                                          const char **name,
                                          sterna_logical_tensor_t *logical_tensor);

/**
 * Reads the bytes of memory, tensors between partitions and scratch, of a run on inputs of the shapes that
 * ran last; 0 if nothing ran.
 */
sterna_status_t sterna_session_get_run_memory(const sterna_session_t *session,
                                              size_t *size);

/**
 * Reads the descriptions of the outputs for inputs of given dims, row-major, by name: those of the memory
 * that `sterna_session_run` takes. Nothing runs; the plan of the run is made. The errors are those of
 * `sterna_session_run`.
 */
sterna_status_t sterna_session_get_output_logical_tensors(const sterna_session_t *session,
                                                          size_t input_num,
                                                          const sterna_named_dims_t *input_dims,
                                                          size_t output_num,
                                                          sterna_logical_tensor_t *outputs);

/**
 * Runs a session on all of its inputs, by name and in any order, and writes all of its outputs to memory of
 * the caller's. Nothing is allocated, once as many runs of these shapes as now have run at once.
 *
 * An input may have any strides; another set of strides is another plan. An output is row-major, overlaps
 * nothing, and has the dims that follow. During the call nobody writes to the elements of inputs, and nobody
 * else uses those of outputs.
 *
 * `invalid_arguments` for inputs and outputs that are not those of the model, and for an index of a lookup
 * that is out of range; `invalid_data_type` for those of another type; `invalid_shape` for dims that are not
 * those of the model, or contradict its ops; `runtime_error` with what an op of the caller's said. After an
 * error outputs may hold anything.
 */
sterna_status_t sterna_session_run(const sterna_session_t *session,
                                   size_t input_num,
                                   const sterna_named_view_t *inputs,
                                   size_t output_num,
                                   const sterna_named_view_mut_t *outputs);

/**
 * As `sterna_session_run`, with all outputs in new tensors of the session's engine, in the order of the
 * session, which the caller destroys. `outputs` has room for `output_num` of them, which is what
 * `sterna_session_get_output_num` says.
 */
sterna_status_t sterna_session_run_new(const sterna_session_t *session,
                                       size_t input_num,
                                       const sterna_named_view_t *inputs,
                                       size_t output_num,
                                       sterna_tensor_t **outputs);

/**
 * Makes an empty state for one sequence of runs of a session. Dims of its tensors that the model leaves open
 * are said here, by the name of the input, where the number along the axis is that of rows to make room for;
 * or they follow from the first run. `invalid_arguments` if the session has no links, and for names that are
 * not those of the model.
 */
sterna_status_t sterna_session_state_create(sterna_session_state_t **state,
                                            const sterna_session_t *session,
                                            size_t dim_num,
                                            const sterna_named_dims_t *state_dims);

/**
 * Destroys a state. Null is fine; destroying one twice is an error of the caller.
 */
sterna_status_t sterna_session_state_destroy(sterna_session_state_t *state);

/**
 * Makes a copy of a state with memory of its own, for another sequence that starts alike.
 */
sterna_status_t sterna_session_state_fork(const sterna_session_state_t *state,
                                          sterna_session_state_t **forked);

/**
 * Drops all rows of a state, and makes tensors that do not grow zeros. Memory is kept.
 */
sterna_status_t sterna_session_state_reset(sterna_session_state_t *state);

/**
 * Drops the newest rows of a state behind a length. Tensors that do not grow stay as they are.
 */
sterna_status_t sterna_session_state_trim(sterna_session_state_t *state,
                                          size_t row_num);

/**
 * Reads the number of rows of a state: the tokens so far, or those of the window.
 */
sterna_status_t sterna_session_state_get_row_num(const sterna_session_state_t *state,
                                                 size_t *num);

/**
 * Reads the bytes of the memory of all tensors of a state.
 */
sterna_status_t sterna_session_state_get_memory(const sterna_session_state_t *state,
                                                size_t *size);

/**
 * Sets a tensor of a state, by the name of the input: a prefix that was computed before. Of its dims, the
 * one along the axis is free. All tensors of a state should get the same number of rows.
 */
sterna_status_t sterna_session_state_set(sterna_session_state_t *state,
                                         const char *name,
                                         const sterna_view_t *value);

/**
 * As `sterna_session_run`, with a state in place of the inputs and outputs that links name: the run reads
 * the rows of earlier runs and leaves its own behind them. After an error the state is as it was.
 * `invalid_arguments` also for a state of another session, and for one whose memory is used up.
 */
sterna_status_t sterna_session_state_run(sterna_session_state_t *state,
                                         const sterna_session_t *session,
                                         size_t input_num,
                                         const sterna_named_view_t *inputs,
                                         size_t output_num,
                                         const sterna_named_view_mut_t *outputs);

/**
 * As `sterna_session_state_run`, with the outputs in new tensors, as `sterna_session_run_new` gives them.
 * `outputs` has room for all outputs of the session; those that are part of the state become null.
 */
sterna_status_t sterna_session_state_run_new(sterna_session_state_t *state,
                                             const sterna_session_t *session,
                                             size_t input_num,
                                             const sterna_named_view_t *inputs,
                                             size_t output_num,
                                             sterna_tensor_t **outputs);

/**
 * The name of a status, such as `invalid_arguments`; "unknown status" for a number that is none. The text is
 * constant and must not be freed.
 */
const char *sterna_status_string(sterna_status_t status);

/**
 * Makes a stream of an engine. The flags are `in_order`, `out_of_order` or both, which are the same here;
 * `profiling` is not implemented.
 */
sterna_status_t sterna_stream_create(sterna_stream_t **stream,
                                     sterna_engine_t *engine,
                                     sterna_stream_flags_t flags);

/**
 * Reads the engine of a stream. The stream owns the engine: the caller does not destroy it, and it is valid
 * as long as the stream.
 */
sterna_status_t sterna_stream_get_engine(const sterna_stream_t *stream,
                                         sterna_engine_t **engine);

/**
 * Returns when all executions so far have ended, which is at once: on a CPU each call returns when its
 * result is written. It is here for programs that are written for other devices as well.
 */
sterna_status_t sterna_stream_wait(const sterna_stream_t *stream);

/**
 * Destroys a stream. Null is fine; destroying one twice is an error of the caller.
 */
sterna_status_t sterna_stream_destroy(sterna_stream_t *stream);

/**
 * Frees text from a function of this library whose documentation says so. Null is fine; freeing one text
 * twice is an error of the caller.
 */
sterna_status_t sterna_string_destroy(char *string);

/**
 * Makes a tensor on the caller's memory, or on memory that the tensor owns if the handle is
 * `STERNA_MEMORY_ALLOCATE`. Owned memory comes from the allocator of the engine, is zero at first, and is
 * aligned to 64 bytes if the allocator obeys the alignment. The handle may be null at first; an execution
 * needs memory unless the tensor is empty.
 *
 * The caller's memory must stay at its address while an execution uses it. A host scalar is made by
 * `sterna_tensor_create_scalar`.
 */
sterna_status_t sterna_tensor_create(sterna_tensor_t **tensor,
                                     const sterna_logical_tensor_t *logical_tensor,
                                     sterna_engine_t *engine,
                                     void *handle);

/**
 * Makes a tensor on memory that the caller lets nobody write to, which serves as an input: an execution
 * refuses it as an output. The handle may be null at first, and is not `STERNA_MEMORY_ALLOCATE`. Otherwise
 * as `sterna_tensor_create`.
 */
sterna_status_t sterna_tensor_create_const(sterna_tensor_t **tensor,
                                           const sterna_logical_tensor_t *logical_tensor,
                                           sterna_engine_t *engine,
                                           const void *handle);

/**
 * Makes a host scalar; the value at the address is copied.
 */
sterna_status_t sterna_tensor_create_scalar(sterna_tensor_t **tensor,
                                            const sterna_logical_tensor_t *logical_tensor,
                                            const void *value);

/**
 * Destroys a tensor, and the memory that it owns. Null is fine; destroying one twice is an error of the
 * caller.
 */
sterna_status_t sterna_tensor_destroy(sterna_tensor_t *tensor);

/**
 * Reads the address of the memory of a tensor; null for a host scalar.
 */
sterna_status_t sterna_tensor_get_data_handle(const sterna_tensor_t *tensor,
                                              void **handle);

/**
 * Gives a tensor other memory: the caller's, or with `STERNA_MEMORY_ALLOCATE` memory that the tensor owns.
 * Memory that it owned before is freed. A host scalar takes no memory.
 */
sterna_status_t sterna_tensor_set_data_handle(sterna_tensor_t *tensor,
                                              void *handle);

/**
 * Reads the engine of a tensor; null for a host scalar. The tensor owns the engine: the caller does not
 * destroy it, and it is valid as long as the tensor.
 */
sterna_status_t sterna_tensor_get_engine(const sterna_tensor_t *tensor,
                                         sterna_engine_t **engine);

/**
 * Reads the description of a tensor.
 */
sterna_status_t sterna_tensor_get_logical_tensor(const sterna_tensor_t *tensor,
                                                 sterna_logical_tensor_t *logical_tensor);

/**
 * Sets whether each compilation and each execution writes a line to the standard output: 0 is no, 1 and 2
 * are yes. Before the first call the environment variable `STERNA_VERBOSE` decides, or `ONEDNN_VERBOSE` if
 * the first one is not set.
 */
sterna_status_t sterna_verbose_set(int level);

/**
 * The version of the library that is loaded. It is constant and must not be freed.
 */
const sterna_version_t *sterna_version(void);

/**
 * The version of the library that is loaded, such as "0.1.0". The text is constant and must not be freed.
 */
const char *sterna_version_string(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STERNA_H */
