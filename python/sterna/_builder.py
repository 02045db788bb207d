"""The builder of graphs, with a method for each kind of op.

`tests/builder_methods.py` writes this file from the builder in Rust and the schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ._sterna import GraphBuilder as NativeBuilder
from ._sterna import Value
from ._types import DTypeLike

#: A value of the builder, or a number, which takes the type of the first value that is not boolean.
Operand = Value | float


class GraphBuilder(NativeBuilder):
    """Builds a graph from values. Each op is checked when it is added, so that an error names the values of its line.

    There is a method for each kind of op. It takes operands, values or numbers, and attributes; those that
    are not given have the default of the schema. ``name`` names the op and its result; ``dtype`` is the
    type of a result whose type does not follow from the operands. Each raises ``OpError`` for operands and
    attributes that the kind does not allow and ``ShapeError`` for shapes that contradict its rule.

    >>> import numpy as np, sterna
    >>> g = sterna.GraphBuilder()
    >>> x = g.input("x", "f32", [None, 2])
    >>> w = g.constant("w", np.array([[1, 0], [0, 2]], np.float32))
    >>> g.output("y", g.softmax(g.matmul(x, w) + 1.0, axis=-1))
    >>> session = g.build().session()
    >>> session(x=np.zeros((1, 2), np.float32))["y"]
    array([[0.5, 0.5]], dtype=float32)
    """

    def abs(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The absolute value: the sign bit is cleared, all other bits stay, those of a NaN too; also f64, and
        s32, s64.

        Operands: src.
        """
        return self.op("Abs", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def abs_backward(
        self,
        src: Operand,
        diff_dst: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The gradient of `|x|`: `y` for `x` above 0, `−y` below, else 0.

        Operands: src, diff_dst.
        """
        return self.op("AbsBackward", [src, diff_dst], None, outputs=1, name=name, dtype=dtype)[0]

    def add(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x + y`; also s32, s64, f64.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "Add",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def argmax(
        self,
        src: Operand,
        *,
        axis: int,
        keep_dims: bool | None = None,
        select_last_index: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The index of the largest element of each line along `axis`; of several the first, or with
        `select_last_index` the last.

        Operands: src.

        Attributes: ``axis`` required; ``keep_dims`` False unless given; ``select_last_index`` False unless
        given.
        """
        return self.op(
            "ArgMax",
            [src],
            {"axis": axis, "keep_dims": keep_dims, "select_last_index": select_last_index},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def argmin(
        self,
        src: Operand,
        *,
        axis: int,
        keep_dims: bool | None = None,
        select_last_index: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The index of the smallest element of each line along `axis`; of several the first, or with
        `select_last_index` the last.

        Operands: src.

        Attributes: ``axis`` required; ``keep_dims`` False unless given; ``select_last_index`` False unless
        given.
        """
        return self.op(
            "ArgMin",
            [src],
            {"axis": axis, "keep_dims": keep_dims, "select_last_index": select_last_index},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def avg_pool(
        self,
        src: Operand,
        *,
        strides: Sequence[int],
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        exclude_pad: bool,
        kernel: Sequence[int],
        data_format: Literal["NCX", "NXC"] | None = None,
        rounding_type: str | None = None,
        auto_pad: Literal["None", "SAME_UPPER", "SAME_LOWER", "VALID"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The mean of each window of `MaxPool` without dilations: its sum by the number of its elements, where
        those in the padding are zeros.

        Operands: src.

        Attributes: ``strides`` required; ``pads_begin`` required; ``pads_end`` required; ``exclude_pad``
        required; ``kernel`` required; ``data_format`` 'NXC' unless given; ``rounding_type`` 'floor' unless
        given; ``auto_pad`` 'None' unless given.
        """
        return self.op(
            "AvgPool",
            [src],
            {
                "strides": strides,
                "pads_begin": pads_begin,
                "pads_end": pads_end,
                "exclude_pad": exclude_pad,
                "kernel": kernel,
                "data_format": data_format,
                "rounding_type": rounding_type,
                "auto_pad": auto_pad,
            },
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def avg_pool_backward(
        self,
        diff_dst: Operand,
        *more: Operand,
        strides: Sequence[int],
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        exclude_pad: bool,
        kernel: Sequence[int],
        auto_pad: Literal["None", "SAME_UPPER", "SAME_LOWER", "VALID"] | None = None,
        data_format: Literal["NCX", "NXC"] | None = None,
        src_shape: Sequence[int] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The gradient of `AvgPool`: the sum of the elements of `diff_dst` whose windows have an element, each
        by the number of elements of its window, as `AvgPool` counts them under `exclude_pad` or not.

        Operands, 1 to 2: diff_dst, src_shape.

        Attributes: ``strides`` required; ``pads_begin`` required; ``pads_end`` required; ``exclude_pad``
        required; ``kernel`` required; ``auto_pad`` 'None' unless given; ``data_format`` 'NXC' unless given;
        ``src_shape`` [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] unless given.
        """
        return self.op(
            "AvgPoolBackward",
            [diff_dst, *more],
            {
                "strides": strides,
                "pads_begin": pads_begin,
                "pads_end": pads_end,
                "exclude_pad": exclude_pad,
                "kernel": kernel,
                "auto_pad": auto_pad,
                "data_format": data_format,
                "src_shape": src_shape,
            },
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def batch_norm_forward_training(
        self,
        src: Operand,
        mean: Operand,
        variance: Operand,
        *more: Operand,
        epsilon: float,
        momentum: float | None = None,
        data_format: Literal["NCX", "NXC"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> tuple[Value, ...]:
        """`gamma · (src − batch_mean) / √(batch_variance + epsilon) + beta` with `batch_mean = sum(src) / n` and
        `batch_variance = sum((src − batch_mean)²) / n` over all dims but that of the channels. `running_mean`
        is `momentum · mean + (1 − momentum) · batch_mean`, and `running_variance` likewise, of the outputs as
        they are rounded.

        Operands, 3 to 5: src, mean, variance, gamma, beta.

        Attributes: ``epsilon`` required; ``momentum``; ``data_format`` 'NXC' unless given.

        Results: dst, running_mean, running_variance, batch_mean, batch_variance.
        """
        return self.op(
            "BatchNormForwardTraining",
            [src, mean, variance, *more],
            {"epsilon": epsilon, "momentum": momentum, "data_format": data_format},
            outputs=5,
            name=name,
            dtype=dtype,
        )

    def batch_norm_inference(
        self,
        src: Operand,
        gamma: Operand,
        beta: Operand,
        mean: Operand,
        variance: Operand,
        *,
        epsilon: float,
        data_format: Literal["NCX", "NXC"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`(src − mean) · (gamma / √(variance + epsilon)) + beta` with the numbers of the channel, each step
        rounded to f32.

        Operands: src, gamma, beta, mean, variance.

        Attributes: ``epsilon`` required; ``data_format`` 'NXC' unless given.
        """
        return self.op(
            "BatchNormInference",
            [src, gamma, beta, mean, variance],
            {"epsilon": epsilon, "data_format": data_format},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def batch_norm_training_backward(
        self,
        src: Operand,
        diff_dst: Operand,
        mean: Operand,
        variance: Operand,
        *more: Operand,
        epsilon: float,
        data_format: Literal["NCX", "NXC"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """With `x' = (src − mean) / √(variance + epsilon)` and means over all dims but that of the channels,
        `diff_src` is `gamma · (diff_dst − mean(diff_dst) − x' · mean(diff_dst · x')) / √(variance +
        epsilon)`; `diff_gamma` is the sum of `diff_dst · x'`, `diff_beta` that of `diff_dst`. Without `gamma`
        it is 1. (oneDNN leaves out both means, and `gamma`, if `diff_gamma` and `diff_beta` are not asked
        for.)

        Operands, 4 to 5: src, diff_dst, mean, variance, gamma.

        Attributes: ``epsilon`` required; ``data_format`` 'NXC' unless given.
        """
        return self.op(
            "BatchNormTrainingBackward",
            [src, diff_dst, mean, variance, *more],
            {"epsilon": epsilon, "data_format": data_format},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def bias_add(
        self,
        src: Operand,
        bias: Operand,
        *,
        data_format: Literal["NCX", "NXC"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x + y`; also s32, s64, f64.

        Operands: src, bias.

        Attributes: ``data_format`` 'NXC' unless given.
        """
        return self.op(
            "BiasAdd",
            [src, bias],
            {"data_format": data_format},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def bias_add_backward(
        self,
        diff_dst: Operand,
        *,
        data_format: Literal["NCX", "NXC"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The sum of `diff_dst` over all dims but that of the channels.

        Operands: diff_dst.

        Attributes: ``data_format`` 'NXC' unless given.
        """
        return self.op(
            "BiasAddBackward",
            [diff_dst],
            {"data_format": data_format},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def cache_store(
        self,
        src: Operand,
        rows: Operand,
        slots: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """A cache in pages to which rows of new tokens are written: a copy of `src`, of dims [pages, heads, rows
        of a page, elements], in which row `i` of `rows`, of dims [tokens, heads, elements], is row `slots[i]
        mod n` of page `slots[i] / n` of `n` rows. A row whose slot is −1 is left out.

        Operands: src, rows, slots.
        """
        return self.op("CacheStore", [src, rows, slots], None, outputs=1, name=name, dtype=dtype)[0]

    def cast(
        self,
        src: Operand,
        *,
        dtype: DTypeLike,
        name: str | None = None,
    ) -> Value:
        """The same number in another type. Integer to integer wraps around. Floating point to integer truncates
        and saturates; NaN becomes 0. A conversion to floating point rounds once; true is 1. To its own type a
        number keeps every bit.

        Operands: src.
        """
        return self.op("Cast", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def ceil(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The smallest integer that is not below `x`; also f64.

        Operands: src.
        """
        return self.op("Ceil", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def clamp(
        self,
        src: Operand,
        *,
        min: float,
        max: float,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x` within [`p`, `q`]: `min(max(x, p), q)`. Here `p` = `min`, `q` = `max`.

        Operands: src.

        Attributes: ``min`` required; ``max`` required.
        """
        return self.op("Clamp", [src], {"min": min, "max": max}, outputs=1, name=name, dtype=dtype)[0]

    def clamp_backward(
        self,
        src_or_dst: Operand,
        diff_dst: Operand,
        *,
        min: float,
        max: float,
        use_dst: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`y` for `x` strictly between `p` and `q`, else 0; of source and of result alike. Here `p` = `min`, `q`
        = `max`.

        Operands: src/dst, diff_dst.

        Attributes: ``min`` required; ``max`` required; ``use_dst`` True unless given.
        """
        return self.op(
            "ClampBackward",
            [src_or_dst, diff_dst],
            {"min": min, "max": max, "use_dst": use_dst},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def concat(self, srcs: Sequence[Operand], *, axis: int, name: str | None = None) -> Value:
        """The operands one behind the other along ``axis``.

        Operands: any number.

        Attributes: ``axis`` required.
        """
        return self.op("Concat", list(srcs), {"axis": axis}, outputs=1, name=name)[0]

    def conv_transpose(
        self,
        src: Operand,
        weights: Operand,
        *more: Operand,
        strides: Sequence[int],
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        dilations: Sequence[int],
        output_padding: Sequence[int] | None = None,
        auto_pad: Literal["None", "SAME_UPPER", "SAME_LOWER", "VALID"] | None = None,
        groups: int | None = None,
        data_format: Literal["NCX", "NXC"] | None = None,
        weights_format: Literal["XOI", "IOX"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """ConvolutionBackwardData of `src` in place of the gradients of windows, plus the bias of the channel if
        there is one: each element adds its products with a kernel to the result, `strides` from one kernel to
        the next.

        Operands, 2 to 3: src, weights, bias.

        Attributes: ``output_padding`` [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] unless given; ``strides``
        required; ``pads_begin`` required; ``pads_end`` required; ``dilations`` required; ``auto_pad`` 'None'
        unless given; ``groups`` 1 unless given; ``data_format`` 'NXC' unless given; ``weights_format`` 'XOI'
        unless given.
        """
        return self.op(
            "ConvTranspose",
            [src, weights, *more],
            {
                "strides": strides,
                "pads_begin": pads_begin,
                "pads_end": pads_end,
                "dilations": dilations,
                "output_padding": output_padding,
                "auto_pad": auto_pad,
                "groups": groups,
                "data_format": data_format,
                "weights_format": weights_format,
            },
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def conv_transpose_backward_data(
        self,
        diff_dst: Operand,
        weights: Operand,
        *,
        strides: Sequence[int],
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        dilations: Sequence[int],
        auto_pad: Literal["None", "SAME_UPPER", "SAME_LOWER", "VALID"] | None = None,
        groups: int | None = None,
        data_format: Literal["NCX", "NXC"] | None = None,
        weights_format: Literal["XOI", "IOX"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The gradient of the source of a ConvTranspose, which is the Convolution of `diff_dst` by the same
        weights.

        Operands: diff_dst, weights.

        Attributes: ``strides`` required; ``pads_begin`` required; ``pads_end`` required; ``dilations``
        required; ``auto_pad`` 'None' unless given; ``groups`` 1 unless given; ``data_format`` 'NXC' unless
        given; ``weights_format`` 'XOI' unless given.
        """
        return self.op(
            "ConvTransposeBackwardData",
            [diff_dst, weights],
            {
                "strides": strides,
                "pads_begin": pads_begin,
                "pads_end": pads_end,
                "dilations": dilations,
                "auto_pad": auto_pad,
                "groups": groups,
                "data_format": data_format,
                "weights_format": weights_format,
            },
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def conv_transpose_backward_weights(
        self,
        src: Operand,
        diff_dst: Operand,
        *more: Operand,
        strides: Sequence[int],
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        dilations: Sequence[int],
        weights_shape: Sequence[int] | None = None,
        auto_pad: Literal["None", "SAME_UPPER", "SAME_LOWER", "VALID"] | None = None,
        groups: int | None = None,
        data_format: Literal["NCX", "NXC"] | None = None,
        weights_format: Literal["XOI", "IOX"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The gradient of the weights of a ConvTranspose: for each, the sum of the products of all elements of
        `src` and the gradients of the elements to which the weight takes them.

        Operands, 2 to 3: src, diff_dst, weights_shape.

        Attributes: ``weights_shape`` [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] unless given; ``strides`` required;
        ``pads_begin`` required; ``pads_end`` required; ``dilations`` required; ``auto_pad`` 'None' unless
        given; ``groups`` 1 unless given; ``data_format`` 'NXC' unless given; ``weights_format`` 'XOI' unless
        given.
        """
        return self.op(
            "ConvTransposeBackwardWeights",
            [src, diff_dst, *more],
            {
                "strides": strides,
                "pads_begin": pads_begin,
                "pads_end": pads_end,
                "dilations": dilations,
                "weights_shape": weights_shape,
                "auto_pad": auto_pad,
                "groups": groups,
                "data_format": data_format,
                "weights_format": weights_format,
            },
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def convolution(
        self,
        src: Operand,
        weights: Operand,
        *more: Operand,
        strides: Sequence[int],
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        dilations: Sequence[int],
        auto_pad: Literal["None", "SAME_UPPER", "SAME_LOWER", "VALID"] | None = None,
        groups: int | None = None,
        data_format: Literal["NCX", "NXC"] | None = None,
        weights_format: Literal["XIO", "OIX"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The sum of the products of the weights of an output channel and the elements of a window of `src`,
        plus the bias of the channel if there is one, rounded once. Padding takes no part; only beside a
        weight that is not finite it may make the sum NaN, as a 0 does.

        Operands, 2 to 3: src, weights, bias.

        Attributes: ``strides`` required; ``pads_begin`` required; ``pads_end`` required; ``dilations``
        required; ``auto_pad`` 'None' unless given; ``groups`` 1 unless given; ``data_format`` 'NXC' unless
        given; ``weights_format`` 'XIO' unless given.
        """
        return self.op(
            "Convolution",
            [src, weights, *more],
            {
                "strides": strides,
                "pads_begin": pads_begin,
                "pads_end": pads_end,
                "dilations": dilations,
                "auto_pad": auto_pad,
                "groups": groups,
                "data_format": data_format,
                "weights_format": weights_format,
            },
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def convolution_backward_data(
        self,
        diff_dst: Operand,
        weights: Operand,
        *more: Operand,
        strides: Sequence[int],
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        dilations: Sequence[int],
        output_padding: Sequence[int] | None = None,
        dst_shape: Sequence[int] | None = None,
        auto_pad: Literal["None", "SAME_UPPER", "SAME_LOWER", "VALID"] | None = None,
        groups: int | None = None,
        data_format: Literal["NCX", "NXC"] | None = None,
        weights_format: Literal["XIO", "OIX"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The gradient of the source of a Convolution: for each element, the sum of the products of the
        gradients of the windows that see it and the weights by which they do; 0 if none does.

        Operands, 2 to 3: diff_dst, weights, dst_shape.

        Attributes: ``output_padding`` [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] unless given; ``dst_shape`` [0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0] unless given; ``strides`` required; ``pads_begin`` required;
        ``pads_end`` required; ``dilations`` required; ``auto_pad`` 'None' unless given; ``groups`` 1 unless
        given; ``data_format`` 'NXC' unless given; ``weights_format`` 'XIO' unless given.
        """
        return self.op(
            "ConvolutionBackwardData",
            [diff_dst, weights, *more],
            {
                "strides": strides,
                "pads_begin": pads_begin,
                "pads_end": pads_end,
                "dilations": dilations,
                "output_padding": output_padding,
                "dst_shape": dst_shape,
                "auto_pad": auto_pad,
                "groups": groups,
                "data_format": data_format,
                "weights_format": weights_format,
            },
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def convolution_backward_weights(
        self,
        src: Operand,
        diff_dst: Operand,
        *more: Operand,
        strides: Sequence[int],
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        dilations: Sequence[int],
        weights_shape: Sequence[int] | None = None,
        auto_pad: Literal["None", "SAME_UPPER", "SAME_LOWER", "VALID"] | None = None,
        groups: int | None = None,
        data_format: Literal["NCX", "NXC"] | None = None,
        weights_format: Literal["XIO", "OIX"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The gradient of the weights of a Convolution: for each, the sum of the products of the gradients of
        all windows and the elements that the weight is multiplied with there.

        Operands, 2 to 3: src, diff_dst, weights_shape.

        Attributes: ``weights_shape`` [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] unless given; ``strides`` required;
        ``pads_begin`` required; ``pads_end`` required; ``dilations`` required; ``auto_pad`` 'None' unless
        given; ``groups`` 1 unless given; ``data_format`` 'NXC' unless given; ``weights_format`` 'XIO' unless
        given.
        """
        return self.op(
            "ConvolutionBackwardWeights",
            [src, diff_dst, *more],
            {
                "strides": strides,
                "pads_begin": pads_begin,
                "pads_end": pads_end,
                "dilations": dilations,
                "weights_shape": weights_shape,
                "auto_pad": auto_pad,
                "groups": groups,
                "data_format": data_format,
                "weights_format": weights_format,
            },
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def cos(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """Cosine of `x` in radians, NaN at ±∞.

        Operands: src.
        """
        return self.op("Cos", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def cumsum(
        self,
        src: Operand,
        *,
        axis: int,
        exclusive: bool | None = None,
        reverse: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The sum of the elements along the axis up to the element's own, with `exclusive` without its own; with
        `reverse` from the last element on.

        Operands: src.

        Attributes: ``axis`` required; ``exclusive`` False unless given; ``reverse`` False unless given.
        """
        return self.op(
            "CumSum",
            [src],
            {"axis": axis, "exclusive": exclusive, "reverse": reverse},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def dequantize(
        self,
        src: Operand,
        *,
        scales: Sequence[float],
        qtype: str | None = None,
        axis: int | None = None,
        zps: Sequence[int] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`(x − zp) · scale`, both steps rounded to f32.

        Operands: src.

        Attributes: ``qtype`` 'per_tensor' unless given; ``axis`` 1 unless given; ``scales`` required;
        ``zps``.
        """
        return self.op(
            "Dequantize",
            [src],
            {"scales": scales, "qtype": qtype, "axis": axis, "zps": zps},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def divide(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x / y`; also f64, and s32, s64: rounded down, and 0 if `y` is 0.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "Divide",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def dropout(
        self,
        src: Operand,
        seed: Operand,
        offset: Operand,
        probability: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`src / (1 − P)` where a random 32-bit word is above `P · (2³² − 1)`, else +0, whatever stood there; P
        is `probability`. The second output, if there is one, is 1 where an element is kept, else 0.

        Operands: src, seed, offset, probability.
        """
        return self.op(
            "Dropout",
            [src, seed, offset, probability],
            None,
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def dynamic_dequantize(
        self,
        src: Operand,
        scales: Operand,
        *more: Operand,
        qtype: str | None = None,
        axis: int | None = None,
        group_shape: Sequence[int] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """As Dequantize, with scales and zero points that are tensors; zero points are rounded to f32, and the
        result to the type of the scales.

        Operands, 2 to 3: src, scales, zps.

        Attributes: ``qtype`` 'per_tensor' unless given; ``axis`` 1 unless given; ``group_shape``.
        """
        return self.op(
            "DynamicDequantize",
            [src, scales, *more],
            {"qtype": qtype, "axis": axis, "group_shape": group_shape},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def dynamic_quantize(
        self,
        src: Operand,
        scales: Operand,
        *more: Operand,
        dtype: DTypeLike,
        qtype: str | None = None,
        axis: int | None = None,
        name: str | None = None,
    ) -> Value:
        """As Quantize, with scales and zero points that are tensors; a single zero point goes with any number of
        scales.

        Operands, 2 to 3: src, scales, zps.

        Attributes: ``qtype`` 'per_tensor' unless given; ``axis`` 1 unless given.
        """
        return self.op(
            "DynamicQuantize",
            [src, scales, *more],
            {"qtype": qtype, "axis": axis},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def elu(
        self,
        src: Operand,
        *,
        alpha: float,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x` above 0, else `p · (eˣ − 1)`. Here `p` = `alpha`.

        Operands: src.

        Attributes: ``alpha`` required.
        """
        return self.op("Elu", [src], {"alpha": alpha}, outputs=1, name=name, dtype=dtype)[0]

    def elu_backward(
        self,
        src_or_dst: Operand,
        diff_dst: Operand,
        *,
        alpha: float,
        use_dst: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """With `use_dst`: `y` for `x` above 0, else `y · (x + p)`. Here `p` = `alpha`. Without `use_dst`: `y`
        for `x` above 0, else `y · p · eˣ`. Here `p` = `alpha`.

        Operands: src/dst, diff_dst.

        Attributes: ``alpha`` required; ``use_dst`` True unless given.
        """
        return self.op(
            "EluBackward",
            [src_or_dst, diff_dst],
            {"alpha": alpha, "use_dst": use_dst},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def equal(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x = y`.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "Equal",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def exp(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`eˣ`; also f64.

        Operands: src.
        """
        return self.op("Exp", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def fill(
        self,
        *,
        dtype: DTypeLike,
        shape: Sequence[int],
        value: float,
        name: str | None = None,
    ) -> Value:
        """The same number everywhere, converted from f32; as a boolean, whether it is not 0.

        Attributes: ``shape`` required; ``value`` required.
        """
        return self.op(
            "Fill",
            [],
            {"shape": shape, "value": value},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def floor(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The largest integer that is not above `x`; also f64.

        Operands: src.
        """
        return self.op("Floor", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def gather(
        self,
        src: Operand,
        indices: Operand,
        *,
        axis: int,
        batch_dims: int | None = None,
        clamp_indices: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The elements of `src` that `indices` name: in `Gather` whole slices along `axis`, for each element of
        the first `batch_dims` dims by its own indices; in `GatherElements` each element of the result by an
        index of its own along `axis`; in `GatherND` by tuples of indices, which are the last dim of
        `indices`.

        Operands: src, indices.

        Attributes: ``axis`` 0 unless given; ``batch_dims`` 0 unless given; ``clamp_indices`` False unless
        given.
        """
        return self.op(
            "Gather",
            [src, indices],
            {"axis": axis, "batch_dims": batch_dims, "clamp_indices": clamp_indices},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def gather_backward(
        self,
        diff_dst: Operand,
        indices: Operand,
        *,
        src_shape: Sequence[int],
        axis: int | None = None,
        batch_dims: int | None = None,
        clamp_indices: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The gradient of the source of `Gather`: at each place of a source of shape `src_shape`, the sum of the
        elements of `diff_dst` that were gathered from it, 0 where none was.

        Operands: diff_dst, indices.

        Attributes: ``src_shape`` required; ``axis`` 0 unless given; ``batch_dims`` 0 unless given;
        ``clamp_indices`` False unless given.
        """
        return self.op(
            "GatherBackward",
            [diff_dst, indices],
            {
                "src_shape": src_shape,
                "axis": axis,
                "batch_dims": batch_dims,
                "clamp_indices": clamp_indices,
            },
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def gather_elements(
        self,
        src: Operand,
        indices: Operand,
        *,
        axis: int,
        clamp_indices: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The elements of `src` that `indices` name: in `Gather` whole slices along `axis`, for each element of
        the first `batch_dims` dims by its own indices; in `GatherElements` each element of the result by an
        index of its own along `axis`; in `GatherND` by tuples of indices, which are the last dim of
        `indices`.

        Operands: src, indices.

        Attributes: ``axis`` 0 unless given; ``clamp_indices`` False unless given.
        """
        return self.op(
            "GatherElements",
            [src, indices],
            {"axis": axis, "clamp_indices": clamp_indices},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def gather_nd(
        self,
        src: Operand,
        indices: Operand,
        *,
        batch_dims: int | None = None,
        clamp_indices: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The elements of `src` that `indices` name: in `Gather` whole slices along `axis`, for each element of
        the first `batch_dims` dims by its own indices; in `GatherElements` each element of the result by an
        index of its own along `axis`; in `GatherND` by tuples of indices, which are the last dim of
        `indices`.

        Operands: src, indices.

        Attributes: ``batch_dims`` 0 unless given; ``clamp_indices`` False unless given.
        """
        return self.op(
            "GatherND",
            [src, indices],
            {"batch_dims": batch_dims, "clamp_indices": clamp_indices},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def gelu(
        self,
        src: Operand,
        *,
        mode: Literal["gelu_erf", "gelu_tanh"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """With `mode` = `gelu_tanh`: `x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))`. With `mode` = `gelu_erf`:
        `x · Φ(x)`, by the error function.

        Operands: src.

        Attributes: ``mode`` 'gelu_erf' unless given.
        """
        return self.op("GELU", [src], {"mode": mode}, outputs=1, name=name, dtype=dtype)[0]

    def gelu_backward(
        self,
        src: Operand,
        diff_dst: Operand,
        *,
        mode: Literal["gelu_erf", "gelu_tanh"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """With `mode` = `gelu_tanh`: `y` times the derivative of GELU's tanh form; at ±∞ that is NaN. With
        `mode` = `gelu_erf`: `y · (Φ(x) + x·φ(x))`.

        Operands: src, diff_dst.

        Attributes: ``mode`` 'gelu_erf' unless given.
        """
        return self.op(
            "GELUBackward",
            [src, diff_dst],
            {"mode": mode},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def gen_index(
        self,
        src: Operand,
        *,
        axis: int,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The element's index along the dim that `axis` names; the input is shape-only.

        Operands: src.

        Attributes: ``axis`` required.
        """
        return self.op("GenIndex", [src], {"axis": axis}, outputs=1, name=name, dtype=dtype)[0]

    def greater(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x > y`.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "Greater",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def greater_equal(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x ≥ y`.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "GreaterEqual",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def group_norm(
        self,
        src: Operand,
        *more: Operand,
        groups: int,
        keep_stats: bool | None = None,
        use_affine: bool | None = None,
        epsilon: float | None = None,
        data_format: Literal["NCX", "NXC"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The formula of LayerNorm over the channels of a group, all that lies beside them included, for each of
        the first dim: `groups` groups of neighbouring channels.

        Operands, 1 to 3: src, gamma, beta.

        Attributes: ``keep_stats`` False unless given; with True the statistics are results too; ``groups``
        required; ``use_affine`` follows from the operands unless given; ``epsilon`` 1e-05 unless given;
        ``data_format`` 'NXC' unless given.
        """
        return self.op(
            "GroupNorm",
            [src, *more],
            {
                "groups": groups,
                "keep_stats": keep_stats,
                "use_affine": use_affine,
                "epsilon": epsilon,
                "data_format": data_format,
            },
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def hard_sigmoid(
        self,
        src: Operand,
        *,
        alpha: float,
        beta: float,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`min(max(p·x + q, 0), 1)`. Here `p` = `alpha`, `q` = `beta`.

        Operands: src.

        Attributes: ``alpha`` required; ``beta`` required.
        """
        return self.op(
            "HardSigmoid",
            [src],
            {"alpha": alpha, "beta": beta},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def hard_sigmoid_backward(
        self,
        src: Operand,
        diff_dst: Operand,
        *,
        alpha: float,
        beta: float,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`p · y` if `p·x + q` is strictly between 0 and 1, else 0. Here `p` = `alpha`, `q` = `beta`.

        Operands: src, diff_dst.

        Attributes: ``alpha`` required; ``beta`` required.
        """
        return self.op(
            "HardSigmoidBackward",
            [src, diff_dst],
            {"alpha": alpha, "beta": beta},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def hard_swish(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x · min(max(x + 3, 0), 6) / 6`.

        Operands: src.
        """
        return self.op("HardSwish", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def hard_swish_backward(
        self,
        src: Operand,
        diff_dst: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`y` for `x` from 3 on, `y · (x/3 + 1/2)` for `x` strictly between −3 and 3, else 0.

        Operands: src, diff_dst.
        """
        return self.op("HardSwishBackward", [src, diff_dst], None, outputs=1, name=name, dtype=dtype)[0]

    def identity(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The same element, bit for bit.

        Operands: src.
        """
        return self.op("Identity", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def interpolate(
        self,
        src: Operand,
        *more: Operand,
        mode: Literal["nearest", "linear", "bilinear", "trilinear"],
        sizes: Sequence[int] | None = None,
        scales: Sequence[float] | None = None,
        coordinate_transformation_mode: Literal["half_pixel", "align_corners"] | None = None,
        data_format: Literal["NCX", "NXC"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """Each spatial dim of `src` resized to a number of `sizes`, or by a factor of `scales`.

        Operands, 1 to 2: src, sizes.

        Attributes: ``mode`` required; ``sizes``; ``scales``; ``coordinate_transformation_mode`` 'half_pixel'
        unless given; ``data_format`` 'NXC' unless given.
        """
        return self.op(
            "Interpolate",
            [src, *more],
            {
                "mode": mode,
                "sizes": sizes,
                "scales": scales,
                "coordinate_transformation_mode": coordinate_transformation_mode,
                "data_format": data_format,
            },
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def interpolate_backward(
        self,
        src: Operand,
        diff_dst: Operand,
        *more: Operand,
        mode: Literal["nearest", "linear", "bilinear", "trilinear"],
        coordinate_transformation_mode: Literal["half_pixel", "align_corners"] | None = None,
        sizes: Sequence[int] | None = None,
        scales: Sequence[float] | None = None,
        data_format: Literal["NCX", "NXC"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The gradient of `Interpolate` for `src`, of which the shape alone is used: the sum of the elements of
        `diff_dst` that were made of an element, each by its share.

        Operands, 2 to 3: src, diff_dst, sizes.

        Attributes: ``mode`` required; ``coordinate_transformation_mode`` 'half_pixel' unless given;
        ``sizes``; ``scales``; ``data_format`` 'NXC' unless given.
        """
        return self.op(
            "InterpolateBackward",
            [src, diff_dst, *more],
            {
                "mode": mode,
                "coordinate_transformation_mode": coordinate_transformation_mode,
                "sizes": sizes,
                "scales": scales,
                "data_format": data_format,
            },
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def is_finite(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """True if it is neither NaN nor an infinity.

        Operands: src.
        """
        return self.op("IsFinite", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def is_inf(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """True if it is one of the two infinities.

        Operands: src.
        """
        return self.op("IsInf", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def is_nan(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """True if it is NaN, of any kind.

        Operands: src.
        """
        return self.op("IsNaN", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def layer_norm(
        self,
        src: Operand,
        *more: Operand,
        keep_stats: bool | None = None,
        begin_norm_axis: int | None = None,
        use_affine: bool | None = None,
        epsilon: float | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value | tuple[Value, ...]:
        """`gamma · (x − mean) / √(variance + epsilon) + beta` over the dims from `begin_norm_axis` on, with
        `mean = sum(x) / n` and `variance = sum((x − mean)²) / n`, which are the second and third output.

        Operands, 1 to 3: src, gamma, beta.

        Attributes: ``keep_stats`` False unless given; with True the statistics are results too;
        ``begin_norm_axis`` -1 unless given; ``use_affine`` follows from the operands unless given;
        ``epsilon`` 1e-05 unless given.

        Results: dst, mean, variance.
        """
        outputs = 3 if keep_stats else 1
        made = self.op(
            "LayerNorm",
            [src, *more],
            {
                "keep_stats": keep_stats,
                "begin_norm_axis": begin_norm_axis,
                "use_affine": use_affine,
                "epsilon": epsilon,
            },
            outputs=outputs,
            name=name,
            dtype=dtype,
        )
        return made if keep_stats else made[0]

    def layer_norm_backward(
        self,
        src: Operand,
        diff_dst: Operand,
        mean: Operand,
        variance: Operand,
        *more: Operand,
        begin_norm_axis: int | None = None,
        use_affine: bool | None = None,
        epsilon: float | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """With `x' = (src − mean) / √(variance + epsilon)` and means over the dims from `begin_norm_axis` on,
        `diff_src` is `(g − mean(g) − x' · mean(g · x')) / √(variance + epsilon)` of `g = gamma · diff_dst`;
        `diff_gamma` is the sum of `diff_dst · x'` over all rows, `diff_beta` that of `diff_dst`. Without
        `use_affine` gamma is 1.

        Operands, 4 to 6: src, diff_dst, mean, variance, gamma, beta.

        Attributes: ``begin_norm_axis`` -1 unless given; ``use_affine`` follows from the operands unless
        given; ``epsilon`` 1e-05 unless given.
        """
        return self.op(
            "LayerNormBackward",
            [src, diff_dst, mean, variance, *more],
            {"begin_norm_axis": begin_norm_axis, "use_affine": use_affine, "epsilon": epsilon},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def leaky_relu(
        self,
        src: Operand,
        *,
        alpha: float,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x` from 0 on, else `p · x`. Here `p` = `alpha`.

        Operands: src.

        Attributes: ``alpha`` required.
        """
        return self.op("LeakyReLU", [src], {"alpha": alpha}, outputs=1, name=name, dtype=dtype)[0]

    def less(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x < y`.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "Less",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def less_equal(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x ≤ y`.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "LessEqual",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def log(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """Natural logarithm; also f64.

        Operands: src.
        """
        return self.op("Log", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def log_softmax(
        self,
        src: Operand,
        *,
        axis: int,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x − max − ln(sum)` with `sum` over `exp(x − max)` along the axis.

        Operands: src.

        Attributes: ``axis`` -1 unless given.
        """
        return self.op("LogSoftmax", [src], {"axis": axis}, outputs=1, name=name, dtype=dtype)[0]

    def log_softmax_backward(
        self,
        diff_dst: Operand,
        dst: Operand,
        *,
        axis: int,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`diff_dst − exp(dst) · sum` with `sum` over `diff_dst` along the axis.

        Operands: diff_dst, dst.

        Attributes: ``axis`` -1 unless given.
        """
        return self.op(
            "LogSoftmaxBackward",
            [diff_dst, dst],
            {"axis": axis},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def logical_and(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """True if both are true.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "LogicalAnd",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def logical_not(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The negation of a boolean.

        Operands: src.
        """
        return self.op("LogicalNot", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def logical_or(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """True if at least one is true.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "LogicalOr",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def logical_xor(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """True if exactly one is true.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "LogicalXor",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def matmul(
        self,
        src: Operand,
        weights: Operand,
        *more: Operand,
        transpose_a: bool | None = None,
        transpose_b: bool | None = None,
        accumulation_mode: Literal["strict", "relaxed", "any", "f32", "s32", "f16"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The sum of the products of each row and each column, plus `bias` if there is one, rounded once. A row
        of no elements sums up to 0.

        Operands, 2 to 3: src, weights, bias.

        Attributes: ``transpose_a`` False unless given; ``transpose_b`` False unless given;
        ``accumulation_mode`` 'strict' unless given.
        """
        return self.op(
            "MatMul",
            [src, weights, *more],
            {
                "transpose_a": transpose_a,
                "transpose_b": transpose_b,
                "accumulation_mode": accumulation_mode,
            },
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def max_pool(
        self,
        src: Operand,
        *,
        strides: Sequence[int],
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        kernel: Sequence[int],
        dilations: Sequence[int] | None = None,
        data_format: Literal["NCX", "NXC"] | None = None,
        rounding_type: str | None = None,
        auto_pad: Literal["None", "SAME_UPPER", "SAME_LOWER", "VALID"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The largest element of each window, NaN where one is NaN, +0 above −0; of a window in padding alone it
        is −∞.

        Operands: src.

        Attributes: ``strides`` required; ``pads_begin`` required; ``pads_end`` required; ``kernel`` required;
        ``dilations`` [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] unless given; ``data_format`` 'NXC' unless given;
        ``rounding_type`` 'floor' unless given; ``auto_pad`` 'None' unless given.
        """
        return self.op(
            "MaxPool",
            [src],
            {
                "strides": strides,
                "pads_begin": pads_begin,
                "pads_end": pads_end,
                "kernel": kernel,
                "dilations": dilations,
                "data_format": data_format,
                "rounding_type": rounding_type,
                "auto_pad": auto_pad,
            },
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def max_pool_backward(
        self,
        src: Operand,
        diff_dst: Operand,
        *,
        strides: Sequence[int],
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        kernel: Sequence[int],
        auto_pad: Literal["None", "SAME_UPPER", "SAME_LOWER", "VALID"] | None = None,
        dilations: Sequence[int] | None = None,
        data_format: Literal["NCX", "NXC"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The gradient of `MaxPool`: each element of `diff_dst` is added to the element of `diff_src` at the
        place of the largest element of its window of `src`, of several the first in row-major order. All
        others are 0.

        Operands: src, diff_dst.

        Attributes: ``strides`` required; ``pads_begin`` required; ``pads_end`` required; ``kernel`` required;
        ``auto_pad`` 'None' unless given; ``dilations`` [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] unless given;
        ``data_format`` 'NXC' unless given.
        """
        return self.op(
            "MaxPoolBackward",
            [src, diff_dst],
            {
                "strides": strides,
                "pads_begin": pads_begin,
                "pads_end": pads_end,
                "kernel": kernel,
                "auto_pad": auto_pad,
                "dilations": dilations,
                "data_format": data_format,
            },
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def maximum(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The larger one, NaN if one is NaN, +0 above −0; also s32, s64, f64.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "Maximum",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def minimum(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The smaller one, NaN if one is NaN, −0 below +0; also s32, s64, f64.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "Minimum",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def mish(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x · tanh(ln(1 + eˣ))`.

        Operands: src.
        """
        return self.op("Mish", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def mish_backward(
        self,
        src: Operand,
        diff_dst: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`y` times the derivative of Mish; at ±∞ that is NaN.

        Operands: src, diff_dst.
        """
        return self.op("MishBackward", [src, diff_dst], None, outputs=1, name=name, dtype=dtype)[0]

    def modulo(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x − y · ⌊x / y⌋`, rounded once, which has the sign of `y`; also f64, and s32, s64: 0 if `y` is 0.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "Modulo",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def multiply(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x · y`; also s32, s64, f64.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "Multiply",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def negative(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The negative value: the sign bit is flipped, all other bits stay, those of a NaN too; also f64, and
        s32, s64.

        Operands: src.
        """
        return self.op("Negative", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def not_equal(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x ≠ y`, true if one is NaN.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "NotEqual",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def paged_load(
        self,
        src: Operand,
        block_table: Operand,
        *more: Operand,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The keys or values of sequences whose cache lies in pages. `src` has dims [pages, heads, rows of a
        page, elements]: row `t` of a sequence `b` is row `t mod n` of page `block_table[b, t / n]` of `n`
        rows. With `lengths`, the rows of a sequence from its length on are 0. A row of 4-bit elements has an
        even number of them.

        Operands, 2 to 3: src, block_table, lengths.
        """
        return self.op(
            "PagedLoad",
            [src, block_table, *more],
            None,
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def pow(
        self,
        src: Operand,
        *,
        beta: float,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x` to the power of `p`, as C's `pow`. Here `p` = `beta`.

        Operands: src.

        Attributes: ``beta`` required.
        """
        return self.op("Pow", [src], {"beta": beta}, outputs=1, name=name, dtype=dtype)[0]

    def power(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x` to the power of `y`, as C's `pow`; also f64, whose power is that of the C library, and s32, s64:
        for `y` below 0 the quotient of 1 and the power, cut off, and 0 if `x` is 0.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "Power",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def prelu(
        self,
        src: Operand,
        slope: Operand,
        *,
        data_format: Literal["NCX", "NXC"] | None = None,
        per_channel_broadcast: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x` from 0 on, else `y · x`.

        Operands: src, slope.

        Attributes: ``data_format`` 'NXC' unless given; ``per_channel_broadcast`` True unless given.
        """
        return self.op(
            "PReLU",
            [src, slope],
            {"data_format": data_format, "per_channel_broadcast": per_channel_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def prelu_backward(
        self,
        src: Operand,
        slope: Operand,
        diff_dst: Operand,
        *,
        data_format: Literal["NCX", "NXC"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> tuple[Value, ...]:
        """`diff_src` is `diff_dst` for `src` above 0, else `diff_dst · slope`. `diff_slope` is the sum of
        `diff_dst · src` over the elements of `src` that are not above 0 and share a slope.

        Operands: src, slope, diff_dst.

        Attributes: ``data_format`` 'NXC' unless given.

        Results: diff_src, diff_slope.
        """
        return self.op(
            "PReLUBackward",
            [src, slope, diff_dst],
            {"data_format": data_format},
            outputs=2,
            name=name,
            dtype=dtype,
        )

    def quantize(
        self,
        src: Operand,
        *,
        dtype: DTypeLike,
        scales: Sequence[float],
        qtype: str | None = None,
        axis: int | None = None,
        zps: Sequence[int] | None = None,
        name: str | None = None,
    ) -> Value:
        """`x / scale + zp`, both steps rounded to f32; into an integer rounded to nearest, ties to even, and
        kept within its bounds, NaN as 0; into f8 rounded once more.

        Operands: src.

        Attributes: ``qtype`` 'per_tensor' unless given; ``axis`` 1 unless given; ``scales`` required;
        ``zps``.
        """
        return self.op(
            "Quantize",
            [src],
            {"scales": scales, "qtype": qtype, "axis": axis, "zps": zps},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def reciprocal(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`1 / x`; also f64.

        Operands: src.
        """
        return self.op("Reciprocal", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def reduce_l1(
        self,
        src: Operand,
        *more: Operand,
        axes: Sequence[int],
        keep_dims: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The sum of `|x|` along `axes`; of nothing it is 0.

        Operands, 1 to 2: src, axes.

        Attributes: ``axes`` [] unless given; ``keep_dims`` False unless given.
        """
        return self.op(
            "ReduceL1",
            [src, *more],
            {"axes": axes, "keep_dims": keep_dims},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def reduce_l2(
        self,
        src: Operand,
        *more: Operand,
        axes: Sequence[int],
        keep_dims: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The square root of the sum of `x²` along `axes`; of nothing it is 0.

        Operands, 1 to 2: src, axes.

        Attributes: ``axes`` [] unless given; ``keep_dims`` False unless given.
        """
        return self.op(
            "ReduceL2",
            [src, *more],
            {"axes": axes, "keep_dims": keep_dims},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def reduce_max(
        self,
        src: Operand,
        *more: Operand,
        axes: Sequence[int],
        keep_dims: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The largest element along `axes`, NaN where one is NaN, +0 above −0; of nothing it is −∞.

        Operands, 1 to 2: src, axes.

        Attributes: ``axes`` [] unless given; ``keep_dims`` False unless given.
        """
        return self.op(
            "ReduceMax",
            [src, *more],
            {"axes": axes, "keep_dims": keep_dims},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def reduce_mean(
        self,
        src: Operand,
        *more: Operand,
        axes: Sequence[int],
        keep_dims: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The sum along `axes` by the number of elements; of nothing it is NaN.

        Operands, 1 to 2: src, axes.

        Attributes: ``axes`` [] unless given; ``keep_dims`` False unless given.
        """
        return self.op(
            "ReduceMean",
            [src, *more],
            {"axes": axes, "keep_dims": keep_dims},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def reduce_min(
        self,
        src: Operand,
        *more: Operand,
        axes: Sequence[int],
        keep_dims: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The smallest element along `axes`, NaN where one is NaN, −0 below +0; of nothing it is ∞.

        Operands, 1 to 2: src, axes.

        Attributes: ``axes`` [] unless given; ``keep_dims`` False unless given.
        """
        return self.op(
            "ReduceMin",
            [src, *more],
            {"axes": axes, "keep_dims": keep_dims},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def reduce_prod(
        self,
        src: Operand,
        *more: Operand,
        axes: Sequence[int],
        keep_dims: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The product along `axes`; of nothing it is 1.

        Operands, 1 to 2: src, axes.

        Attributes: ``axes`` [] unless given; ``keep_dims`` False unless given.
        """
        return self.op(
            "ReduceProd",
            [src, *more],
            {"axes": axes, "keep_dims": keep_dims},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def reduce_sum(
        self,
        src: Operand,
        *more: Operand,
        axes: Sequence[int],
        keep_dims: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The sum along `axes`; of nothing it is 0.

        Operands, 1 to 2: src, axes.

        Attributes: ``axes`` [] unless given; ``keep_dims`` False unless given.
        """
        return self.op(
            "ReduceSum",
            [src, *more],
            {"axes": axes, "keep_dims": keep_dims},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def relu(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`max(x, 0)`; also f64.

        Operands: src.
        """
        return self.op("ReLU", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def relu_backward(
        self,
        src_or_dst: Operand,
        diff_dst: Operand,
        *,
        use_dst: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`y` for `x` above 0, else 0; of source and of result alike.

        Operands: src/dst, diff_dst.

        Attributes: ``use_dst`` True unless given.
        """
        return self.op(
            "ReLUBackward",
            [src_or_dst, diff_dst],
            {"use_dst": use_dst},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def reorder(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The same elements; only strides differ.

        Operands: src.
        """
        return self.op("Reorder", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def reshape(
        self,
        src: Operand,
        *,
        shape: Sequence[int],
        special_zero: bool = False,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The elements of the input, in the same order, in the shape `shape`.

        Operands: src.

        Attributes: ``shape`` required; ``special_zero`` required.
        """
        return self.op(
            "StaticReshape",
            [src],
            {"shape": shape, "special_zero": special_zero},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def rms_norm(
        self,
        src: Operand,
        *more: Operand,
        begin_norm_axis: int | None = None,
        epsilon: float | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`gamma · x / √(mean(x²) + epsilon)` with the mean over the dims from `begin_norm_axis` on.

        Operands, 1 to 2: src, gamma.

        Attributes: ``begin_norm_axis`` -1 unless given; ``epsilon`` 1e-05 unless given.
        """
        return self.op(
            "RMSNorm",
            [src, *more],
            {"begin_norm_axis": begin_norm_axis, "epsilon": epsilon},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def round(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The nearest integer, halves to the even one; also f64.

        Operands: src.
        """
        return self.op("Round", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def scatter_elements(
        self,
        src: Operand,
        indices: Operand,
        updates: Operand,
        *,
        axis: int,
        reduction: Literal["none", "add", "mul", "min", "max"] | None = None,
        clamp_indices: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """A copy of `src` in which `updates` stand at the places that `indices` name: in `ScatterElements` each
        by an index of its own along `axis`, in `ScatterND` whole slices by tuples of indices, which are the
        last dim of `indices`. Under a `reduction` the old element and the update are combined.

        Operands: src, indices, updates.

        Attributes: ``axis`` 0 unless given; ``reduction`` 'none' unless given; ``clamp_indices`` False unless
        given.
        """
        return self.op(
            "ScatterElements",
            [src, indices, updates],
            {"axis": axis, "reduction": reduction, "clamp_indices": clamp_indices},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def scatter_nd(
        self,
        src: Operand,
        indices: Operand,
        updates: Operand,
        *,
        reduction: Literal["none", "add", "mul", "min", "max"] | None = None,
        clamp_indices: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """A copy of `src` in which `updates` stand at the places that `indices` name: in `ScatterElements` each
        by an index of its own along `axis`, in `ScatterND` whole slices by tuples of indices, which are the
        last dim of `indices`. Under a `reduction` the old element and the update are combined.

        Operands: src, indices, updates.

        Attributes: ``reduction`` 'none' unless given; ``clamp_indices`` False unless given.
        """
        return self.op(
            "ScatterND",
            [src, indices, updates],
            {"reduction": reduction, "clamp_indices": clamp_indices},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def select(
        self,
        cond: Operand,
        then: Operand,
        else_: Operand,
        *,
        auto_broadcast: Literal["none", "numpy", "pdpd", "multidirectional"] | None = None,
        axis: int | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """The second operand if the first is not 0, else the third, bit for bit.

        Operands: cond, then, else.

        Attributes: ``auto_broadcast`` 'numpy' unless given; ``axis``.
        """
        return self.op(
            "Select",
            [cond, then, else_],
            {"auto_broadcast": auto_broadcast, "axis": axis},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def sigmoid(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`1 / (1 + e⁻ˣ)`; also f64.

        Operands: src.
        """
        return self.op("Sigmoid", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def sigmoid_backward(
        self,
        src_or_dst: Operand,
        diff_dst: Operand,
        *,
        use_dst: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """With `use_dst`: `y · x · (1 − x)`. Without `use_dst`: `y · s · (1 − s)` with `s = 1 / (1 + e⁻ˣ)`.

        Operands: src/dst, diff_dst.

        Attributes: ``use_dst`` True unless given.
        """
        return self.op(
            "SigmoidBackward",
            [src_or_dst, diff_dst],
            {"use_dst": use_dst},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def sin(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """Sine of `x` in radians, NaN at ±∞.

        Operands: src.
        """
        return self.op("Sin", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def slice(
        self,
        src: Operand,
        *,
        starts: Sequence[int],
        ends: Sequence[int],
        steps: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """Along each of `axes` the elements from `starts` to `ends`, the end excluded, every `steps`-th.

        Operands: src.

        Attributes: ``starts`` required; ``ends`` required; ``steps`` [] unless given; ``axes`` [] unless
        given.
        """
        return self.op(
            "Slice",
            [src],
            {"starts": starts, "ends": ends, "steps": steps, "axes": axes},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def softmax(
        self,
        src: Operand,
        *,
        axis: int,
        mode: Literal["none", "inf_as_zero"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`exp(x − max) / sum` with `sum` over `exp(x − max)` along the axis; the statistics are `max +
        ln(sum)`.

        Operands: src.

        Attributes: ``axis`` 1 unless given; ``mode`` 'none' unless given.
        """
        return self.op(
            "SoftMax",
            [src],
            {"axis": axis, "mode": mode},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def softmax_backward(
        self,
        diff_dst: Operand,
        dst: Operand,
        *,
        axis: int,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`dst · (diff_dst − sum)` with `sum` over `dst · diff_dst` along the axis.

        Operands: diff_dst, dst.

        Attributes: ``axis`` 1 unless given.
        """
        return self.op(
            "SoftMaxBackward",
            [diff_dst, dst],
            {"axis": axis},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def softplus(
        self,
        src: Operand,
        *,
        beta: float | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`ln(1 + e^(p·x)) / p`. Here `p` = `beta`.

        Operands: src.

        Attributes: ``beta`` 1.0 unless given.
        """
        return self.op("SoftPlus", [src], {"beta": beta}, outputs=1, name=name, dtype=dtype)[0]

    def softplus_backward(
        self,
        src: Operand,
        diff_dst: Operand,
        *,
        beta: float | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`y / (1 + e^(−p·x))`. Here `p` = `beta`.

        Operands: src, diff_dst.

        Attributes: ``beta`` 1.0 unless given.
        """
        return self.op(
            "SoftPlusBackward",
            [src, diff_dst],
            {"beta": beta},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def sqrt(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """Square root; also f64.

        Operands: src.
        """
        return self.op("Sqrt", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def sqrt_backward(
        self,
        src_or_dst: Operand,
        diff_dst: Operand,
        *,
        use_dst: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """With `use_dst`: `y / (2·x)`. Without `use_dst`: `y / (2·√x)`.

        Operands: src/dst, diff_dst.

        Attributes: ``use_dst`` True unless given.
        """
        return self.op(
            "SqrtBackward",
            [src_or_dst, diff_dst],
            {"use_dst": use_dst},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def square(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x · x`; also f64.

        Operands: src.
        """
        return self.op("Square", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def squared_difference(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`(x − y)²`, the difference rounded to f32 before it is squared.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "SquaredDifference",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def subtract(
        self,
        src_0: Operand,
        src_1: Operand,
        *,
        auto_broadcast: Literal["none", "numpy"] | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """`x − y`; also s32, s64, f64.

        Operands: src_0, src_1.

        Attributes: ``auto_broadcast`` 'numpy' unless given.
        """
        return self.op(
            "Subtract",
            [src_0, src_1],
            {"auto_broadcast": auto_broadcast},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def tanh(
        self,
        src: Operand,
        *,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """Hyperbolic tangent; also f64.

        Operands: src.
        """
        return self.op("Tanh", [src], None, outputs=1, name=name, dtype=dtype)[0]

    def tanh_backward(
        self,
        src_or_dst: Operand,
        diff_dst: Operand,
        *,
        use_dst: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """With `use_dst`: `y · (1 − x²)`. Without `use_dst`: `y · (1 − tanh²(x))`.

        Operands: src/dst, diff_dst.

        Attributes: ``use_dst`` True unless given.
        """
        return self.op(
            "TanhBackward",
            [src_or_dst, diff_dst],
            {"use_dst": use_dst},
            outputs=1,
            name=name,
            dtype=dtype,
        )[0]

    def topk(
        self,
        src: Operand,
        *,
        k: int,
        axis: int | None = None,
        largest: bool | None = None,
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> tuple[Value, ...]:
        """The `k` largest elements of each line along `axis`, the largest one first, and their indices along the
        axis; without `largest` the `k` smallest, the smallest one first.

        Operands: src.

        Attributes: ``k`` required; ``axis`` -1 unless given; ``largest`` True unless given.

        Results: dst, indices.
        """
        return self.op(
            "TopK",
            [src],
            {"k": k, "axis": axis, "largest": largest},
            outputs=2,
            name=name,
            dtype=dtype,
        )

    def transpose(
        self,
        src: Operand,
        *,
        order: Sequence[int],
        name: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> Value:
        """Dim `i` of the result is dim `order[i]` of the input; an empty `order` reverses the dims.

        Operands: src.

        Attributes: ``order`` required.
        """
        return self.op("StaticTranspose", [src], {"order": order}, outputs=1, name=name, dtype=dtype)[0]

    def type_cast(
        self,
        src: Operand,
        *,
        dtype: DTypeLike,
        name: str | None = None,
    ) -> Value:
        """The same number in another type. Integer to integer wraps around. Floating point to integer truncates
        and saturates; NaN becomes 0. A conversion to floating point rounds once; true is 1. To its own type a
        number keeps every bit.

        Operands: src.
        """
        return self.op("TypeCast", [src], None, outputs=1, name=name, dtype=dtype)[0]
