//! The page of the guide about OpenVINO, so that its code in Rust is compiled and run by the documentation
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
    openvino "openvino.md";
}
