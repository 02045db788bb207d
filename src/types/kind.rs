//! Op kinds, attributes and the other closed lists of names, each with its numeric code.

use super::codes::{coded_enum, documented_enum};
use super::op_docs::{attribute_doc, kind_doc};

documented_enum! { kind_doc,
    /// The kind of an op: its computation.
    ///
    /// Kinds below `0x1000` have the numbers of oneDNN Graph's `dnnl_graph_op_kind_t`. Kinds from there on
    /// are Sterna's own: ops around a select that oneDNN lacks. Their numbers are as stable. `sterna ops
    /// KIND` prints the schema of a kind.
    ///
    /// In formulas `x`, `y` and `z` are the inputs in the order of the ports, after broadcasting, and `p` and
    /// `q` are attributes. Names behind ports, such as T and T1, are variables of types: what shares one
    /// shares its type. `docs/ops.md` says the same, and how exact each kind is.
    ///
    /// ```
    /// use sterna::OpKind;
    /// assert_eq!("Select".parse(), Ok(OpKind::Select));
    /// assert!(OpKind::MatMul.code() < 0x1000 && OpKind::LogicalAnd.code() >= 0x1000);
    /// ```
    pub enum OpKind: "op kind" {
        #[doc(alias("absolute", "magnitude"))]
        Abs = 0 => "Abs",
        AbsBackward = 1 => "AbsBackward",
        #[doc(alias("plus", "residual"))]
        Add = 2 => "Add",
        #[doc(alias("mean_pool"))]
        AvgPool = 3 => "AvgPool",
        AvgPoolBackward = 4 => "AvgPoolBackward",
        BatchNormTrainingBackward = 5 => "BatchNormTrainingBackward",
        BatchNormForwardTraining = 6 => "BatchNormForwardTraining",
        #[doc(alias("batch_norm"))]
        BatchNormInference = 7 => "BatchNormInference",
        #[doc(alias("bias"))]
        BiasAdd = 8 => "BiasAdd",
        BiasAddBackward = 9 => "BiasAddBackward",
        #[doc(alias("clip", "relu6", "hardtanh"))]
        Clamp = 10 => "Clamp",
        ClampBackward = 11 => "ClampBackward",
        #[doc(alias("cat", "concatenate", "join"))]
        Concat = 12 => "Concat",
        #[doc(alias("conv", "conv2d"))]
        Convolution = 13 => "Convolution",
        ConvolutionBackwardData = 14 => "ConvolutionBackwardData",
        ConvolutionBackwardWeights = 15 => "ConvolutionBackwardWeights",
        #[doc(alias("deconvolution", "conv_transpose2d"))]
        ConvTranspose = 16 => "ConvTranspose",
        ConvTransposeBackwardData = 17 => "ConvTransposeBackwardData",
        ConvTransposeBackwardWeights = 18 => "ConvTransposeBackwardWeights",
        #[doc(alias("dequantize_linear"))]
        Dequantize = 19 => "Dequantize",
        #[doc(alias("div"))]
        Divide = 20 => "Divide",
        #[doc(alias("int4", "weight only quantization", "q4"))]
        DynamicDequantize = 21 => "DynamicDequantize",
        #[doc(alias("quantize_linear"))]
        DynamicQuantize = 22 => "DynamicQuantize",
        #[doc(alias("celu"))]
        Elu = 23 => "Elu",
        EluBackward = 24 => "EluBackward",
        /// The end of a graph: a use of a tensor that leaves it.
        End = 25 => "End",
        #[doc(alias("exponential"))]
        Exp = 26 => "Exp",
        #[doc(alias("gelu", "gelu_tanh"))]
        GELU = 27 => "GELU",
        GELUBackward = 28 => "GELUBackward",
        #[doc(alias("hard_swish"))]
        HardSwish = 29 => "HardSwish",
        HardSwishBackward = 30 => "HardSwishBackward",
        #[doc(alias("resize", "upsample"))]
        Interpolate = 31 => "Interpolate",
        InterpolateBackward = 32 => "InterpolateBackward",
        #[doc(alias("layer_norm", "layer_normalization"))]
        LayerNorm = 33 => "LayerNorm",
        LayerNormBackward = 34 => "LayerNormBackward",
        #[doc(alias("leaky_relu"))]
        LeakyReLU = 35 => "LeakyReLU",
        #[doc(alias("ln"))]
        Log = 36 => "Log",
        #[doc(alias("log_softmax"))]
        LogSoftmax = 37 => "LogSoftmax",
        LogSoftmaxBackward = 38 => "LogSoftmaxBackward",
        #[doc(alias("matmul", "gemm", "linear", "dot", "bmm", "einsum", "fully_connected"))]
        MatMul = 39 => "MatMul",
        #[doc(alias("max"))]
        Maximum = 40 => "Maximum",
        #[doc(alias("max_pool"))]
        MaxPool = 41 => "MaxPool",
        MaxPoolBackward = 42 => "MaxPoolBackward",
        #[doc(alias("min"))]
        Minimum = 43 => "Minimum",
        Mish = 44 => "Mish",
        MishBackward = 45 => "MishBackward",
        #[doc(alias("mul", "scale"))]
        Multiply = 46 => "Multiply",
        #[doc(alias("prelu"))]
        PReLU = 47 => "PReLU",
        PReLUBackward = 48 => "PReLUBackward",
        #[doc(alias("quantize_per_tensor", "quantize_per_channel"))]
        Quantize = 49 => "Quantize",
        #[doc(alias("inverse", "rcp"))]
        Reciprocal = 50 => "Reciprocal",
        #[doc(alias("norm"))]
        ReduceL1 = 51 => "ReduceL1",
        #[doc(alias("norm"))]
        ReduceL2 = 52 => "ReduceL2",
        #[doc(alias("amax"))]
        ReduceMax = 53 => "ReduceMax",
        #[doc(alias("mean"))]
        ReduceMean = 54 => "ReduceMean",
        #[doc(alias("amin"))]
        ReduceMin = 55 => "ReduceMin",
        #[doc(alias("prod"))]
        ReduceProd = 56 => "ReduceProd",
        #[doc(alias("sum"))]
        ReduceSum = 57 => "ReduceSum",
        #[doc(alias("relu"))]
        ReLU = 58 => "ReLU",
        ReLUBackward = 59 => "ReLUBackward",
        #[doc(alias("contiguous", "layout"))]
        Reorder = 60 => "Reorder",
        #[doc(alias("rint", "round_half_even"))]
        Round = 61 => "Round",
        #[doc(alias("logistic", "silu", "swish"))]
        Sigmoid = 62 => "Sigmoid",
        SigmoidBackward = 63 => "SigmoidBackward",
        #[doc(alias("softmax", "attention", "scaled_dot_product_attention", "sdpa", "flash attention"))]
        SoftMax = 64 => "SoftMax",
        SoftMaxBackward = 65 => "SoftMaxBackward",
        #[doc(alias("softplus"))]
        SoftPlus = 66 => "SoftPlus",
        SoftPlusBackward = 67 => "SoftPlusBackward",
        #[doc(alias("square root"))]
        Sqrt = 68 => "Sqrt",
        SqrtBackward = 69 => "SqrtBackward",
        #[doc(alias("squared"))]
        Square = 70 => "Square",
        SquaredDifference = 71 => "SquaredDifference",
        #[doc(alias("reshape", "view", "flatten", "squeeze"))]
        StaticReshape = 72 => "StaticReshape",
        #[doc(alias("transpose", "permute", "swapaxes"))]
        StaticTranspose = 73 => "StaticTranspose",
        #[doc(alias("sub", "minus"))]
        Subtract = 74 => "Subtract",
        #[doc(alias("hyperbolic tangent"))]
        Tanh = 75 => "Tanh",
        TanhBackward = 76 => "TanhBackward",
        #[doc(alias("convert"))]
        TypeCast = 77 => "TypeCast",
        /// Any op that has no kind here: it keeps its place in a graph, and others run around it.
        #[doc(alias("unknown op"))]
        Wildcard = 78 => "Wildcard",
        #[doc(alias("hard_sigmoid"))]
        HardSigmoid = 79 => "HardSigmoid",
        HardSigmoidBackward = 80 => "HardSigmoidBackward",
        #[doc(alias("where", "masked_fill", "ternary", "choose", "blend"))]
        Select = 81 => "Select",
        #[doc(alias("power"))]
        Pow = 82 => "Pow",
        #[doc(alias("group_norm", "instance_norm"))]
        GroupNorm = 83 => "GroupNorm",
        #[doc(alias("arange", "iota", "index"))]
        GenIndex = 84 => "GenIndex",
        #[doc(alias("ge"))]
        GreaterEqual = 85 => "GreaterEqual",
        #[doc(alias("rms_norm"))]
        RMSNorm = 86 => "RMSNorm",
        #[doc(alias("dropout"))]
        Dropout = 87 => "Dropout",
        #[doc(alias("eq", "one_hot"))]
        Equal = 0x1000 => "Equal",
        #[doc(alias("ne"))]
        NotEqual = 0x1001 => "NotEqual",
        #[doc(alias("lt"))]
        Less = 0x1002 => "Less",
        #[doc(alias("le"))]
        LessEqual = 0x1003 => "LessEqual",
        #[doc(alias("gt"))]
        Greater = 0x1004 => "Greater",
        #[doc(alias("and"))]
        LogicalAnd = 0x1005 => "LogicalAnd",
        #[doc(alias("or"))]
        LogicalOr = 0x1006 => "LogicalOr",
        #[doc(alias("xor"))]
        LogicalXor = 0x1007 => "LogicalXor",
        #[doc(alias("not"))]
        LogicalNot = 0x1008 => "LogicalNot",
        #[doc(alias("isnan"))]
        IsNaN = 0x1009 => "IsNaN",
        #[doc(alias("isinf"))]
        IsInf = 0x100a => "IsInf",
        #[doc(alias("isfinite"))]
        IsFinite = 0x100b => "IsFinite",
        #[doc(alias("copy", "clone"))]
        Identity = 0x100c => "Identity",
        #[doc(alias("neg", "negate"))]
        Negative = 0x100d => "Negative",
        Floor = 0x100e => "Floor",
        Ceil = 0x100f => "Ceil",
        #[doc(alias("full", "constant", "zeros", "ones"))]
        Fill = 0x1010 => "Fill",
        #[doc(alias("convert", "to", "astype"))]
        Cast = 0x1011 => "Cast",
        #[doc(alias("remainder", "fmod", "mod"))]
        Modulo = 0x1012 => "Modulo",
        Sin = 0x1013 => "Sin",
        Cos = 0x1014 => "Cos",
        #[doc(alias("narrow", "strided_slice", "split"))]
        Slice = 0x1015 => "Slice",
        #[doc(alias("cumsum", "running sum", "scan"))]
        CumSum = 0x1016 => "CumSum",
        #[doc(alias("embedding", "take", "index_select"))]
        Gather = 0x1017 => "Gather",
        #[doc(alias("take_along_axis", "gather_elements"))]
        GatherElements = 0x1018 => "GatherElements",
        #[doc(alias("gather_nd"))]
        GatherND = 0x1019 => "GatherND",
        #[doc(alias("embedding_backward", "embedding_dense_backward"))]
        GatherBackward = 0x101a => "GatherBackward",
        #[doc(alias("scatter", "scatter_add"))]
        ScatterElements = 0x101b => "ScatterElements",
        #[doc(alias("scatter_nd", "index_put"))]
        ScatterND = 0x101c => "ScatterND",
        #[doc(alias("topk", "sort", "argsort"))]
        TopK = 0x101d => "TopK",
        #[doc(alias("argmax"))]
        ArgMax = 0x101e => "ArgMax",
        #[doc(alias("argmin"))]
        ArgMin = 0x101f => "ArgMin",
        #[doc(alias("paged_cache_load", "paged attention", "block_table", "page_table"))]
        PagedLoad = 0x1020 => "PagedLoad",
        #[doc(alias("reshape_and_cache", "slot_mapping", "append_paged_kv_cache"))]
        CacheStore = 0x1021 => "CacheStore",
        #[doc(alias("power", "float_power"))]
        Power = 0x1022 => "Power",
    }
}

documented_enum! { attribute_doc,
    /// The name of an attribute of an op; the codes are those of `dnnl_graph_op_attr_t`, from `0x1000` on
    /// Sterna's own.
    ///
    /// ```
    /// use sterna::{Attr, Op, OpKind};
    /// let op = Op::new(0, OpKind::Select).attr(Attr::AutoBroadcast, "none");
    /// assert_eq!(op.get_attr(Attr::AutoBroadcast).unwrap().to_string(), "none");
    /// assert_eq!(Attr::AutoBroadcast.name(), "auto_broadcast");
    /// ```
    #[derive(PartialOrd, Ord)]
    pub enum Attr: "attribute" {
        /// The number `alpha` of a formula: a factor, or the slope of `LeakyReLU` and `HardSigmoid`.
        Alpha = 0x1 => "alpha",
        /// The number `beta` of a formula: the factor in the exponent of `SoftPlus`, the offset of
        /// `HardSigmoid`, the exponent of `Pow`.
        Beta = 0x2 => "beta",
        /// A small number, added to a variance or a mean square before its root is taken.
        Epsilon = 0x3 => "epsilon",
        /// The upper bound of `Clamp`.
        Max = 0x4 => "max",
        /// The lower bound of `Clamp`.
        Min = 0x5 => "min",
        /// The weight of the old statistics in the running ones of batch normalisation.
        Momentum = 0x6 => "momentum",
        /// The scales of a quantisation, or the factors by which `Interpolate` enlarges the spatial dims.
        Scales = 0x20 => "scales",
        /// The dim along which an op works; a negative number counts from the last one.
        Axis = 0x30 => "axis",
        /// The first dim of those over which a norm goes; a negative number counts from the last one.
        BeginNormAxis = 0x31 => "begin_norm_axis",
        /// The number of groups of channels.
        Groups = 0x32 => "groups",
        /// The dims along which an op works; a negative number counts from the last one.
        Axes = 0x40 => "axes",
        /// The distance of neighbouring elements of a window, for each spatial dim.
        Dilations = 0x41 => "dilations",
        /// The shape of the result of a gradient.
        DstShape = 0x42 => "dst_shape",
        /// The size of a window, for each spatial dim.
        Kernel = 0x43 => "kernel",
        /// The dim of the input that each dim of the output is.
        Order = 0x44 => "order",
        /// Elements added to one end of the result of a transposed convolution, for each spatial dim.
        OutputPadding = 0x45 => "output_padding",
        /// Elements added before the first one, for each spatial dim.
        PadsBegin = 0x46 => "pads_begin",
        /// Elements added behind the last one, for each spatial dim.
        PadsEnd = 0x47 => "pads_end",
        /// The shape of the output.
        Shape = 0x48 => "shape",
        /// The spatial dims of the result of `Interpolate`.
        Sizes = 0x49 => "sizes",
        /// The shape of the source whose gradient is computed.
        SrcShape = 0x4a => "src_shape",
        /// The steps from one window to the next, for each spatial dim.
        Strides = 0x4b => "strides",
        /// The shape of the weights whose gradient is computed.
        WeightsShape = 0x4c => "weights_shape",
        /// The zero points of a quantisation: the integers that stand for 0.
        Zps = 0x4d => "zps",
        /// The number of neighbours along each dim that share a scale, with `qtype` = `per_group`.
        GroupShape = 0x4e => "group_shape",
        /// True if padding does not count in a mean.
        ExcludePad = 0x60 => "exclude_pad",
        /// True if a reduced dim stays, as a dim of 1.
        KeepDims = 0x61 => "keep_dims",
        /// True if an op has its mean and variance as outputs.
        KeepStats = 0x62 => "keep_stats",
        /// True if a slope of rank 1 follows the channels of `data_format`.
        PerChannelBroadcast = 0x63 => "per_channel_broadcast",
        /// True if a 0 in `shape` stands for the dim of the input at its place.
        SpecialZero = 0x64 => "special_zero",
        /// True if the last two dims of the left operand of a product are swapped.
        TransposeA = 0x65 => "transpose_a",
        /// True if the last two dims of the right operand of a product are swapped.
        TransposeB = 0x66 => "transpose_b",
        /// True if a norm has `gamma` and `beta`: a factor and an offset of the normalised numbers.
        UseAffine = 0x67 => "use_affine",
        /// True if a gradient is computed from the result of the forward op, false if from its source.
        UseDst = 0x68 => "use_dst",
        /// How the inputs broadcast to each other: the name of an [`AutoBroadcast`].
        AutoBroadcast = 0x80 => "auto_broadcast",
        /// How padding follows from the other attributes.
        AutoPad = 0x81 => "auto_pad",
        /// How `Interpolate` maps a place of the result to one of the source.
        CoordinateTransformationMode = 0x82 => "coordinate_transformation_mode",
        /// Where the channels are: in the last dim (`NXC`) or in the second one (`NCX`).
        DataFormat = 0x83 => "data_format",
        /// The form of a formula: of `GELU`, of `Interpolate`, or of a `SoftMax` of rows without keys.
        Mode = 0x84 => "mode",
        /// How many numbers share a scale: `per_tensor`, `per_channel` or `per_group`.
        Qtype = 0x85 => "qtype",
        /// How the number of windows is rounded.
        RoundingType = 0x86 => "rounding_type",
        /// The order of the dims of weights: of spatial dims X, inputs I and outputs O.
        WeightsFormat = 0x87 => "weights_format",
        /// The type in which sums are taken; Sterna takes them as under `strict`.
        AccumulationMode = 0x88 => "accumulation_mode",
        /// The number that `Fill` writes.
        Value = 0x1000 => "value",
        /// The first element of each range of a `Slice`.
        Starts = 0x1001 => "starts",
        /// The end of each range of a `Slice`, which is excluded.
        Ends = 0x1002 => "ends",
        /// The step of each range of a `Slice`; a negative one goes backwards.
        Steps = 0x1003 => "steps",
        /// True if a running sum leaves out the element at its own place.
        Exclusive = 0x1004 => "exclusive",
        /// True if a running sum begins at the last element.
        Reverse = 0x1005 => "reverse",
        /// The number of leading dims that source and indices share.
        BatchDims = 0x1006 => "batch_dims",
        /// True if an index beyond its dim stands for the nearest element; else it is an error.
        ClampIndices = 0x1007 => "clamp_indices",
        /// How an update is combined with the element at its place.
        Reduction = 0x1008 => "reduction",
        /// The number of elements that `TopK` gives of each line.
        K = 0x1009 => "k",
        /// True if `TopK` gives the largest elements, false if the smallest.
        Largest = 0x100a => "largest",
        /// True if the last one of several equal extremes counts, false if the first.
        SelectLastIndex = 0x100b => "select_last_index",
    }
}

coded_enum! {
    /// How far floating-point arithmetic may be relaxed; the codes are those of `dnnl_fpmath_mode_t`.
    ///
    /// Sterna keeps the mode with the graph and writes it to JSON; it computes as under `Strict` in every
    /// mode.
    ///
    /// ```
    /// use sterna::FpMathMode;
    /// assert_eq!(FpMathMode::ALL.first(), Some(&FpMathMode::Strict));
    /// assert_eq!("tf32".parse(), Ok(FpMathMode::Tf32));
    /// ```
    pub enum FpMathMode: "floating-point math mode" {
        /// Arithmetic in the types of the tensors.
        Strict = 0 => "strict",
        /// Products may round their operands to bf16.
        Bf16 = 1 => "bf16",
        /// Products may round their operands to f16.
        F16 = 2 => "f16",
        /// Products may round their operands to any type.
        Any = 3 => "any",
        /// Products may round their operands to tf32, which has ten bits of fraction.
        Tf32 = 4 => "tf32",
    }
}

coded_enum! {
    /// Kinds of engines; the codes are those of `dnnl_engine_kind_t`.
    ///
    /// Sterna runs on CPU alone. A graph keeps the kind that its JSON names, which says where the graph was
    /// dumped.
    ///
    /// ```
    /// use sterna::{EngineKind, Graph};
    /// assert_eq!("gpu".parse(), Ok(EngineKind::Gpu));
    /// assert_eq!(Graph::new().engine_kind(), EngineKind::Cpu);
    /// ```
    #[derive(Default)]
    pub enum EngineKind: "engine kind" {
        /// An engine of any kind.
        Any = 0 => "any",
        /// The processor.
        #[default]
        Cpu = 1 => "cpu",
        /// A graphics processor, on which nothing here runs.
        Gpu = 2 => "gpu",
    }
}

coded_enum! {
    /// Lifetime of a tensor's value across executions; the codes are those of `dnnl_graph_tensor_property_t`.
    ///
    /// ```
    /// use sterna::{DataType, LogicalTensor, Property};
    /// let weights = LogicalTensor::strided(0, DataType::F32, &[8])?.with_property(Property::Constant)?;
    /// assert_eq!(weights.property(), Property::Constant);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub enum Property: "tensor property" {
        /// Nothing is known.
        Undef = 0 => "undef",
        /// The value may change from one execution to the next.
        Variable = 1 => "variable",
        /// The value is the same in every execution, so that what is made of it once is kept.
        Constant = 2 => "constant",
        /// One number in memory of the host, read when an execution begins.
        HostScalar = 3 => "host_scalar",
    }
}

coded_enum! {
    /// How an op with two or three inputs combines their shapes.
    ///
    /// ```
    /// use sterna::{AutoBroadcast, DataType, LogicalTensor, Op};
    /// let tensor = |id, data_type| LogicalTensor::strided(id, data_type, &[2]);
    /// let (cond, dst) = (tensor(0, DataType::Boolean)?, tensor(3, DataType::S8)?);
    /// let op = Op::select(0, cond, tensor(1, DataType::S8)?, tensor(2, DataType::S8)?, dst);
    /// let op = op.auto_broadcast(AutoBroadcast::Multidirectional); // `cond` may enlarge the result
    /// assert_eq!("pdpd".parse(), Ok(AutoBroadcast::Pdpd));
    /// # drop(op);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub enum AutoBroadcast: "broadcast mode" {
        /// All inputs have one shape.
        None = 0 => "none",
        /// Shapes are aligned on the right, and a dim of 1 is repeated; the condition of a select broadcasts
        /// onto the others.
        Numpy = 1 => "numpy",
        /// Inputs broadcast onto the first one, or in a select onto `then`, from the dim that `axis` names
        /// on.
        Pdpd = 2 => "pdpd",
        /// All inputs broadcast to each other, so that the condition of a select may enlarge the result.
        Multidirectional = 3 => "multidirectional",
    }
}

coded_enum! {
    /// The instruction-set levels of kernels, for each architecture from the plainest to the widest.
    ///
    /// Every machine has `Portable`; x86-64 can have `Avx2` and `Avx512`, AArch64 has `Neon`. A build without
    /// the feature `avx512` has no kernels of level `Avx512`.
    ///
    /// ```
    /// use sterna::Level;
    /// assert!(Level::Portable < Level::Avx2 && Level::Avx2 < Level::Avx512);
    /// assert!(Level::Portable < Level::Neon);
    /// assert!(Level::all_available().any(|level| level == Level::Portable));
    /// ```
    #[derive(PartialOrd, Ord)]
    pub enum Level: "CPU level" {
        /// Plain Rust, on every machine.
        Portable = 0 => "portable",
        /// x86-64 with AVX2, FMA and F16C.
        Avx2 = 1 => "avx2",
        /// x86-64 with AVX-512 (F, BW, DQ and VL).
        Avx512 = 2 => "avx512",
        /// AArch64 with Neon, which each of these machines has.
        Neon = 3 => "neon",
    }
}

coded_enum! {
    /// The computation of a phase of a plan.
    ///
    /// ```
    /// use sterna::{DataType, Engine, LogicalTensor, Op, OpKind, Partition, PhaseKind};
    /// let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[64, 64]);
    /// let op = Op::new(0, OpKind::MatMul).input(tensor(0)?).input(tensor(1)?).output(tensor(2)?);
    /// let partition = Partition::from_op(op)?;
    /// let plan = partition.compile(&Engine::new())?.plan();
    /// let product = plan.nests.iter().find(|nest| nest.kind == PhaseKind::Gemm);
    /// assert_eq!(product.map(|nest| nest.flops), Some(2 * 64 * 64 * 64));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub enum PhaseKind: "phase kind" {
        /// Elements that are computed on their own.
        Map = 0 => "map",
        /// Elements that depend on whole rows, or numbers of rows.
        Rows = 1 => "rows",
        /// The right operand of a product, brought into the order in which the product reads it.
        Pack = 2 => "pack",
        /// Matrix products, and pointwise ops behind them.
        Gemm = 3 => "gemm",
        /// Two products with a SoftMax between them, block of queries by block of queries.
        Attention = 4 => "attention",
        /// Which tiles of the scores of an attention the mask leaves out.
        Classify = 5 => "classify",
        /// The gradients of attention, head by head.
        AttentionBackward = 6 => "attention_backward",
        /// Rows that are moved to or from the places that indices name, and copies and fills before them.
        Lookup = 7 => "lookup",
        /// The first elements of lines in order of size, and their places.
        TopK = 8 => "top_k",
        /// Rows of a pool or an interpolation, each made of rows of the source.
        Pool = 9 => "pool",
    }
}

coded_enum! {
    /// A cap of the CPU, from the least to the most: a [`Level`], and the CPU features beyond it that it
    /// allows.
    ///
    /// [`Level::cap`] takes one, and the environment variable `STERNA_MAX_CPU_ISA` names one. A level alone
    /// allows no feature beyond it: `avx512` means without AVX512-VNNI, AVX512-BF16 and AMX. One of another
    /// architecture caps nothing.
    ///
    /// ```
    /// use sterna::{CpuFeature, CpuIsa, Level};
    /// assert_eq!("avx512_bf16".parse(), Ok(CpuIsa::Avx512Bf16));
    /// assert_eq!(CpuIsa::Avx512Bf16.level(), Level::Avx512);
    /// assert!(CpuIsa::Avx512Bf16.features().contains(CpuFeature::Avx512Vnni));
    /// assert!(!CpuIsa::from(Level::Avx512).features().contains(CpuFeature::Avx512Vnni));
    /// ```
    #[derive(PartialOrd, Ord)]
    pub enum CpuIsa: "instruction set" {
        /// [`Level::Portable`].
        Portable = 0 => "portable",
        /// [`Level::Avx2`].
        Avx2 = 1 => "avx2",
        /// [`Level::Avx512`], and no feature beyond it.
        Avx512 = 2 => "avx512",
        /// Also AVX512-VNNI: dot products of 8-bit integers.
        Avx512Vnni = 3 => "avx512_vnni",
        /// Also AVX512-BF16: dot products of bf16.
        Avx512Bf16 = 4 => "avx512_bf16",
        /// Besides AMX also AVX512-FP16, as in oneDNN's set of that name.
        Avx512Amx = 5 => "avx512_amx",
        /// [`Level::Neon`].
        Neon = 6 => "neon",
    }
}

coded_enum! {
    /// A feature of the CPU that a kernel may use beside its [`Level`].
    ///
    /// ```
    /// use sterna::{CpuFeature, CpuFeatures};
    /// assert_eq!("amx_tile".parse(), Ok(CpuFeature::AmxTile));
    /// println!("BF16 dot products: {}", CpuFeatures::available().contains(CpuFeature::Avx512Bf16));
    /// ```
    pub enum CpuFeature: "CPU feature" {
        /// Conversions between f16 and f32. Every machine of [`Level::Avx2`] has them.
        F16c = 0 => "f16c",
        /// Dot products of 8-bit integers.
        Avx512Vnni = 1 => "avx512_vnni",
        /// Dot products of bf16.
        Avx512Bf16 = 2 => "avx512_bf16",
        /// Arithmetic on f16.
        Avx512Fp16 = 3 => "avx512_fp16",
        /// Tile registers, which the system lets the process use.
        AmxTile = 4 => "amx_tile",
        /// Products of tiles of 8-bit integers.
        AmxInt8 = 5 => "amx_int8",
        /// Products of tiles of bf16.
        AmxBf16 = 6 => "amx_bf16",
    }
}

coded_enum! {
    /// How a graph is cut into partitions; the codes are those of `dnnl_graph_partition_policy_t`.
    ///
    /// ```
    /// use sterna::{DataType, Graph, LogicalTensor, Op, OpKind, Policy};
    /// let tensor = |id| LogicalTensor::strided(id, DataType::F32, &[8]);
    /// let mut graph = Graph::new();
    /// graph.add_op(Op::new(0, OpKind::Exp).input(tensor(0)?).output(tensor(1)?))?;
    /// graph.add_op(Op::new(1, OpKind::Sqrt).input(tensor(1)?).output(tensor(2)?))?;
    /// graph.finalize()?;
    /// assert_eq!(graph.partitions(Policy::Debug)?.len(), 2);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub enum Policy: "partition policy" {
        /// Ops that gain from running together share a partition.
        Fusion = 1 => "fusion",
        /// One op a partition.
        Debug = 2 => "debug",
    }
}
