//! The forms in which kernels of attention multiply.

use super::integers;
use super::operands::TokenOperands;
use super::shape::Shape;
use crate::compile::machine::Machine;
use crate::compile::phases::PlanBuilder;
use crate::kernels::gemm::Form;
use crate::plan::ValueId;
use crate::types::dtype::DataType;

/// The forms in which kernels multiply.
#[derive(Clone, Copy)]
pub(super) struct Forms {
    /// That of the product of scores.
    pub(super) scores: Form,
    /// That of the product of values, if it is not f32 and not integers.
    pub(super) values: Option<Form>,
}

impl Forms {
    pub(super) fn new(
        plan: &PlanBuilder<'_>,
        shape: &Shape,
        operands: &TokenOperands,
        is_integer: bool,
        machine: Machine,
    ) -> Self {
        let pairs = Form::packed(DataType::Bf16, machine.level, machine.features);
        let pairs = Some(pairs).filter(|form| form.is_in_pairs());
        let is_bf16 = |values: [ValueId; 2]| {
            values.iter().all(|&value| plan.group().values[value].data_type == DataType::Bf16)
        };
        let [of_queries, of_keys, of_values] = operands.types().map(|of| of == DataType::Bf16);
        let of_scores = of_queries && of_keys && is_bf16([shape.queries, shape.keys]);
        let scores = match is_integer {
            true => integers::FORM,
            false => pairs.filter(|_| of_scores).unwrap_or(Form::F32),
        };
        Self { scores, values: pairs.filter(|_| of_values && is_bf16([shape.factors, shape.values])) }
    }
}
