//! The pages of the guide in `docs/`, so that their code in Rust is compiled and run by the documentation tests.

macro_rules! pages {
    ($($page:ident $file:literal;)*) => {
        $(
            #[doc = include_str!(concat!("../docs/guide/", $file))]
            pub mod $page {}
        )*
    };
}

pages! {
    concepts "concepts.md";
    broadcasting "broadcasting.md";
    memory "memory.md";
    threads "threads.md";
    performance "performance.md";
}

// These read and write JSON.
#[cfg(feature = "json")]
pages! {
    rust "rust.md";
}
