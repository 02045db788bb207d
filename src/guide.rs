//! The pages of the guide in `docs/`. The documentation tests compile and run their code in Rust.

macro_rules! pages {
    ($($page:ident $file:literal;)*) => {
        $(
            #[doc = include_str!(concat!("../docs/guide/", $file))]
            pub mod $page {}
        )*
    };
}

pages! {
    attention "attention.md";
    concepts "concepts.md";
    broadcasting "broadcasting.md";
    masks "masks.md";
    memory "memory.md";
    numerics "numerics.md";
    sessions "sessions.md";
    threads "threads.md";
    performance "performance.md";
}

// These pages read and write JSON.
#[cfg(feature = "json")]
pages! {
    rust "rust.md";
}
