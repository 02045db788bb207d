//! The guide: what the library does, how it is used from each language, and what is promised, page by page.
//! It is also a book, of which `docs/SUMMARY.md` in the repository has the order: `mdbook build docs` writes
//! it.
//!
//! Begin with the [concepts], or with short programs in the [cookbook]:
//!
//! ```
//! let masked = sterna::select(&[true, false, true], &[1, 2, 3], &-1)?;
//! assert_eq!(masked, [1, -1, 3]);
//! # Ok::<(), sterna::Error>(())
//! ```
//!
//! # Elsewhere
//!
//! Some pages are in the repository alone, in the folder `docs`: the node cases of ONNX (`import.md`), models
//! as they are exported (`models.md`), and measurements of robustness (`robustness.md`).

#[macro_use]
mod links;
#[macro_use]
mod pictures;

/// A module for each page. The links among pages are those of a book; definitions before a page lead them to
/// modules, and those of pictures to the pictures themselves.
macro_rules! pages {
    ($($page:ident $file:tt;)*) => {
        $(
            // Documentation tests name the place by the first text.
            #[cfg_attr(not(doctest), doc = links!())]
            #[cfg_attr(not(doctest), doc = pictures!($file))]
            #[doc = include_str!(concat!("../docs/", $file))]
            #[allow(
                rustdoc::broken_intra_doc_links,
                reason = "shapes in brackets are no links; a test holds those that are"
            )]
            pub mod $page {}
        )*
    };
}

// The documentation tests compile and run the code in Rust of these pages.
pages! {
    attention "guide/attention.md";
    concepts "guide/concepts.md";
    broadcasting "guide/broadcasting.md";
    cookbook "guide/cookbook.md";
    masks "guide/masks.md";
    memory "guide/memory.md";
    numerics "guide/numerics.md";
    sessions "guide/sessions.md";
    threads "guide/threads.md";
    performance "guide/performance.md";
}

// This page reads and writes JSON.
#[cfg(feature = "json")]
pages! {
    rust "guide/rust.md";
}

// Pages without code in Rust, or with code that uses the reader of models, whose documentation tests have it.
#[cfg(not(doctest))]
pages! {
    c "guide/c.md";
    coming "guide/coming.md";
    command_line "command-line.md";
    cpp "guide/cpp.md";
    glossary "guide/glossary.md";
    install "install.md";
    json "guide/json.md";
    libdnnl "guide/libdnnl.md";
    onnx "guide/onnx.md";
    openvino "guide/openvino.md";
    ops "ops.md";
    peers "peers.md";
    platforms "platforms.md";
    python "guide/python.md";
    pytorch "guide/pytorch.md";
    roadmap "roadmap.md";
    robustness "guide/robustness.md";
    supported "supported.md";
    troubleshooting "guide/troubleshooting.md";
}
