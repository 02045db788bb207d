//! An op that Sterna does not know, in the middle of a graph that runs as a whole.
//!
//! `cargo run --example custom_op`

use sterna::{
    AttrValue, CustomNode, CustomOp, DataType, Dims, DynView, DynViewMut, Engine, GraphBuilder,
    LogicalTensor, Result, Session, TensorView,
};

/// `my.domain::Clip`: each element, at most the attribute `most`.
struct Clip;

impl CustomOp for Clip {
    fn output_dims(
        &self,
        _: &CustomNode,
        inputs: &[LogicalTensor],
        _: &[LogicalTensor],
    ) -> Result<Vec<Dims>, String> {
        Ok(vec![inputs[0].dims().ok_or("the input is open")?.into()])
    }

    fn run(
        &self,
        node: &CustomNode,
        inputs: &[DynView<'_>],
        outputs: &mut [DynViewMut<'_>],
    ) -> Result<(), String> {
        let Some(&AttrValue::F32(most)) = node.get_attr("most") else { return Err("no `most`".into()) };
        let x = inputs[0].elements::<f32>().map_err(|error| error.to_string())?;
        let y = outputs[0].elements_mut::<f32>().map_err(|error| error.to_string())?;
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x.min(most));
        Ok(())
    }
}

fn main() -> Result<()> {
    let g = GraphBuilder::new();
    let x = g.input("x", DataType::F32, &[None, Some(2)])?;
    let scaled = (x * 3.0)?;
    let node = CustomNode::new("my.domain::Clip").attr("most", 4.0f32);
    let clipped = g.custom(node, &[scaled], &[(DataType::F32, None)])?[0];
    g.output("y", g.reduce_sum(clipped, &[1])?)?;

    let session = Session::builder(g.build()?).op("my.domain::Clip", Clip).build(&Engine::new())?;
    let x = [0.0f32, 1.0, 2.0, 3.0];
    let outputs = session.run(&[("x", &TensorView::new(&x, &[2, 2]))])?;
    println!("{:?}", outputs["y"].as_slice::<f32>()?);
    assert_eq!(outputs["y"].as_slice::<f32>()?, [3.0, 8.0]);
    Ok(())
}
