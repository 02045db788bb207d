//! Op kinds, attributes and the other closed lists of names, each with its numeric code.

use super::codes::coded_enum;

coded_enum! {
    /// The kind of an op: its computation.
    ///
    /// Kinds below `0x1000` have the numbers of oneDNN Graph's `dnnl_graph_op_kind_t`. Kinds from there on
    /// are Sterna's own: ops around a select that oneDNN lacks. Their numbers are as stable. `sterna ops
    /// KIND` prints the schema of a kind.
    ///
    /// ```
    /// use sterna::OpKind;
    /// assert_eq!("Select".parse(), Ok(OpKind::Select));
    /// assert!(OpKind::MatMul.code() < 0x1000 && OpKind::LogicalAnd.code() >= 0x1000);
    /// ```
    pub enum OpKind: "op kind" {
        Abs = 0 => "Abs",
        AbsBackward = 1 => "AbsBackward",
        Add = 2 => "Add",
        AvgPool = 3 => "AvgPool",
        AvgPoolBackward = 4 => "AvgPoolBackward",
        BatchNormTrainingBackward = 5 => "BatchNormTrainingBackward",
        BatchNormForwardTraining = 6 => "BatchNormForwardTraining",
        BatchNormInference = 7 => "BatchNormInference",
        BiasAdd = 8 => "BiasAdd",
        BiasAddBackward = 9 => "BiasAddBackward",
        Clamp = 10 => "Clamp",
        ClampBackward = 11 => "ClampBackward",
        Concat = 12 => "Concat",
        Convolution = 13 => "Convolution",
        ConvolutionBackwardData = 14 => "ConvolutionBackwardData",
        ConvolutionBackwardWeights = 15 => "ConvolutionBackwardWeights",
        ConvTranspose = 16 => "ConvTranspose",
        ConvTransposeBackwardData = 17 => "ConvTransposeBackwardData",
        ConvTransposeBackwardWeights = 18 => "ConvTransposeBackwardWeights",
        Dequantize = 19 => "Dequantize",
        Divide = 20 => "Divide",
        DynamicDequantize = 21 => "DynamicDequantize",
        DynamicQuantize = 22 => "DynamicQuantize",
        Elu = 23 => "Elu",
        EluBackward = 24 => "EluBackward",
        End = 25 => "End",
        Exp = 26 => "Exp",
        GELU = 27 => "GELU",
        GELUBackward = 28 => "GELUBackward",
        HardSwish = 29 => "HardSwish",
        HardSwishBackward = 30 => "HardSwishBackward",
        Interpolate = 31 => "Interpolate",
        InterpolateBackward = 32 => "InterpolateBackward",
        LayerNorm = 33 => "LayerNorm",
        LayerNormBackward = 34 => "LayerNormBackward",
        LeakyReLU = 35 => "LeakyReLU",
        Log = 36 => "Log",
        LogSoftmax = 37 => "LogSoftmax",
        LogSoftmaxBackward = 38 => "LogSoftmaxBackward",
        MatMul = 39 => "MatMul",
        Maximum = 40 => "Maximum",
        MaxPool = 41 => "MaxPool",
        MaxPoolBackward = 42 => "MaxPoolBackward",
        Minimum = 43 => "Minimum",
        Mish = 44 => "Mish",
        MishBackward = 45 => "MishBackward",
        Multiply = 46 => "Multiply",
        PReLU = 47 => "PReLU",
        PReLUBackward = 48 => "PReLUBackward",
        Quantize = 49 => "Quantize",
        Reciprocal = 50 => "Reciprocal",
        ReduceL1 = 51 => "ReduceL1",
        ReduceL2 = 52 => "ReduceL2",
        ReduceMax = 53 => "ReduceMax",
        ReduceMean = 54 => "ReduceMean",
        ReduceMin = 55 => "ReduceMin",
        ReduceProd = 56 => "ReduceProd",
        ReduceSum = 57 => "ReduceSum",
        ReLU = 58 => "ReLU",
        ReLUBackward = 59 => "ReLUBackward",
        Reorder = 60 => "Reorder",
        Round = 61 => "Round",
        Sigmoid = 62 => "Sigmoid",
        SigmoidBackward = 63 => "SigmoidBackward",
        SoftMax = 64 => "SoftMax",
        SoftMaxBackward = 65 => "SoftMaxBackward",
        SoftPlus = 66 => "SoftPlus",
        SoftPlusBackward = 67 => "SoftPlusBackward",
        Sqrt = 68 => "Sqrt",
        SqrtBackward = 69 => "SqrtBackward",
        Square = 70 => "Square",
        SquaredDifference = 71 => "SquaredDifference",
        StaticReshape = 72 => "StaticReshape",
        StaticTranspose = 73 => "StaticTranspose",
        Subtract = 74 => "Subtract",
        Tanh = 75 => "Tanh",
        TanhBackward = 76 => "TanhBackward",
        TypeCast = 77 => "TypeCast",
        Wildcard = 78 => "Wildcard",
        HardSigmoid = 79 => "HardSigmoid",
        HardSigmoidBackward = 80 => "HardSigmoidBackward",
        Select = 81 => "Select",
        Pow = 82 => "Pow",
        GroupNorm = 83 => "GroupNorm",
        GenIndex = 84 => "GenIndex",
        GreaterEqual = 85 => "GreaterEqual",
        RMSNorm = 86 => "RMSNorm",
        Dropout = 87 => "Dropout",
        Equal = 0x1000 => "Equal",
        NotEqual = 0x1001 => "NotEqual",
        Less = 0x1002 => "Less",
        LessEqual = 0x1003 => "LessEqual",
        Greater = 0x1004 => "Greater",
        LogicalAnd = 0x1005 => "LogicalAnd",
        LogicalOr = 0x1006 => "LogicalOr",
        LogicalXor = 0x1007 => "LogicalXor",
        LogicalNot = 0x1008 => "LogicalNot",
        IsNaN = 0x1009 => "IsNaN",
        IsInf = 0x100a => "IsInf",
        IsFinite = 0x100b => "IsFinite",
        Identity = 0x100c => "Identity",
        Negative = 0x100d => "Negative",
        Floor = 0x100e => "Floor",
        Ceil = 0x100f => "Ceil",
        Fill = 0x1010 => "Fill",
        Cast = 0x1011 => "Cast",
        Modulo = 0x1012 => "Modulo",
        Sin = 0x1013 => "Sin",
        Cos = 0x1014 => "Cos",
        Slice = 0x1015 => "Slice",
        CumSum = 0x1016 => "CumSum",
        Gather = 0x1017 => "Gather",
        GatherElements = 0x1018 => "GatherElements",
        GatherND = 0x1019 => "GatherND",
        GatherBackward = 0x101a => "GatherBackward",
        ScatterElements = 0x101b => "ScatterElements",
        ScatterND = 0x101c => "ScatterND",
        TopK = 0x101d => "TopK",
        ArgMax = 0x101e => "ArgMax",
        ArgMin = 0x101f => "ArgMin",
    }
}

coded_enum! {
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
        Alpha = 0x1 => "alpha",
        Beta = 0x2 => "beta",
        Epsilon = 0x3 => "epsilon",
        Max = 0x4 => "max",
        Min = 0x5 => "min",
        Momentum = 0x6 => "momentum",
        Scales = 0x20 => "scales",
        Axis = 0x30 => "axis",
        BeginNormAxis = 0x31 => "begin_norm_axis",
        Groups = 0x32 => "groups",
        Axes = 0x40 => "axes",
        Dilations = 0x41 => "dilations",
        DstShape = 0x42 => "dst_shape",
        Kernel = 0x43 => "kernel",
        Order = 0x44 => "order",
        OutputPadding = 0x45 => "output_padding",
        PadsBegin = 0x46 => "pads_begin",
        PadsEnd = 0x47 => "pads_end",
        Shape = 0x48 => "shape",
        Sizes = 0x49 => "sizes",
        SrcShape = 0x4a => "src_shape",
        Strides = 0x4b => "strides",
        WeightsShape = 0x4c => "weights_shape",
        Zps = 0x4d => "zps",
        GroupShape = 0x4e => "group_shape",
        ExcludePad = 0x60 => "exclude_pad",
        KeepDims = 0x61 => "keep_dims",
        KeepStats = 0x62 => "keep_stats",
        PerChannelBroadcast = 0x63 => "per_channel_broadcast",
        SpecialZero = 0x64 => "special_zero",
        TransposeA = 0x65 => "transpose_a",
        TransposeB = 0x66 => "transpose_b",
        UseAffine = 0x67 => "use_affine",
        UseDst = 0x68 => "use_dst",
        AutoBroadcast = 0x80 => "auto_broadcast",
        AutoPad = 0x81 => "auto_pad",
        CoordinateTransformationMode = 0x82 => "coordinate_transformation_mode",
        DataFormat = 0x83 => "data_format",
        Mode = 0x84 => "mode",
        Qtype = 0x85 => "qtype",
        RoundingType = 0x86 => "rounding_type",
        WeightsFormat = 0x87 => "weights_format",
        AccumulationMode = 0x88 => "accumulation_mode",
        Value = 0x1000 => "value",
        Starts = 0x1001 => "starts",
        Ends = 0x1002 => "ends",
        Steps = 0x1003 => "steps",
        Exclusive = 0x1004 => "exclusive",
        Reverse = 0x1005 => "reverse",
        BatchDims = 0x1006 => "batch_dims",
        ClampIndices = 0x1007 => "clamp_indices",
        Reduction = 0x1008 => "reduction",
        K = 0x1009 => "k",
        Largest = 0x100a => "largest",
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
        Strict = 0 => "strict",
        Bf16 = 1 => "bf16",
        F16 = 2 => "f16",
        Any = 3 => "any",
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
        Any = 0 => "any",
        #[default]
        Cpu = 1 => "cpu",
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
        Undef = 0 => "undef",
        Variable = 1 => "variable",
        Constant = 2 => "constant",
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
        None = 0 => "none",
        Numpy = 1 => "numpy",
        Pdpd = 2 => "pdpd",
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
        Portable = 0 => "portable",
        Avx2 = 1 => "avx2",
        Avx512 = 2 => "avx512",
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
        Portable = 0 => "portable",
        Avx2 = 1 => "avx2",
        Avx512 = 2 => "avx512",
        Avx512Vnni = 3 => "avx512_vnni",
        Avx512Bf16 = 4 => "avx512_bf16",
        /// Besides AMX also AVX512-FP16, as in oneDNN's set of that name.
        Avx512Amx = 5 => "avx512_amx",
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
