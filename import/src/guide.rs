//! The pages of the guide about models, so that their code in Rust is compiled and run by the documentation
//! tests.

macro_rules! pages {
    ($($page:ident $file:literal;)*) => {
        $(
            #[doc = include_str!(concat!("../../docs/guide/", $file))]
            pub mod $page {}
        )*
    };
}

pages! {
    onnx "onnx.md";
    openvino "openvino.md";
}
