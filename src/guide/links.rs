//! Where the links of pages lead in the documentation in Rust. Written by `capi/tests/guide.rs`;
//! `STERNA_REWRITE=1 cargo test --test guide links` writes it anew.

#[rustfmt::skip]
macro_rules! links {
    () => {"
[../import.md]: crate::guide#elsewhere
[../import.md#the-same-cases-as-models-of-openvino]: crate::guide#elsewhere
[../install.md#rust]: crate::guide::install#rust
[../ops.md]: crate::guide::ops
[../platforms.md]: crate::guide::platforms
[../platforms.md#a-smaller-library]: crate::guide::platforms#a-smaller-library
[../robustness.md]: crate::guide#elsewhere
[attention.md]: crate::guide::attention
[attention.md#caches-in-pages]: crate::guide::attention#caches-in-pages
[attention.md#few-queries]: crate::guide::attention#few-queries
[attention.md#from-a-torch-call]: crate::guide::attention#from-a-torch-call
[attention.md#keys-and-values-of-few-bits]: crate::guide::attention#keys-and-values-of-few-bits
[attention.md#masks-that-are-fast]: crate::guide::attention#masks-that-are-fast
[attention.md#what-is-promised]: crate::guide::attention#what-is-promised
[attention.md#what-true-says]: crate::guide::attention#what-true-says
[broadcasting.md]: crate::guide::broadcasting
[c.md#a-graph-as-a-whole]: crate::guide::c#a-graph-as-a-whole
[c.md#a-program]: crate::guide::c#a-program
[c.md#installing]: crate::guide::c#installing
[c.md#models-from-files]: crate::guide::c#models-from-files
[c.md#what-ran-and-how-long]: crate::guide::c#what-ran-and-how-long
[coming.md]: crate::guide::coming
[coming.md#what-true-means-in-a-mask]: crate::guide::coming#what-true-means-in-a-mask
[command-line.md]: crate::guide::command_line
[cpp.md#a-graph-as-a-whole]: crate::guide::cpp#a-graph-as-a-whole
[cpp.md#what-ran-and-how-long]: crate::guide::cpp#what-ran-and-how-long
[guide/c.md]: crate::guide::c
[guide/cpp.md]: crate::guide::cpp
[guide/libdnnl.md]: crate::guide::libdnnl
[guide/onnx.md]: crate::guide::onnx
[guide/openvino.md]: crate::guide::openvino
[guide/performance.md]: crate::guide::performance
[guide/performance.md#reading-a-plan]: crate::guide::performance#reading-a-plan
[guide/python.md]: crate::guide::python
[guide/rust.md]: crate::guide::rust
[guide/sessions.md#state]: crate::guide::sessions#state
[import.md]: crate::guide#elsewhere
[json.md]: crate::guide::json
[libdnnl.md]: crate::guide::libdnnl
[masks.md]: crate::guide::masks
[masks.md#finite-numbers]: crate::guide::masks#finite-numbers
[masks.md#what-helps-a-tile-to-be-left-out]: crate::guide::masks#what-helps-a-tile-to-be-left-out
[memory.md]: crate::guide::memory
[memory.md#constant-inputs]: crate::guide::memory#constant-inputs
[memory.md#in-place]: crate::guide::memory#in-place
[memory.md#scratch]: crate::guide::memory#scratch
[models.md]: crate::guide#elsewhere
[numerics.md]: crate::guide::numerics
[numerics.md#memory-of-an-execution]: crate::guide::numerics#memory-of-an-execution
[numerics.md#which-bits-are-promised]: crate::guide::numerics#which-bits-are-promised
[onnx.md]: crate::guide::onnx
[onnx.md#memory]: crate::guide::onnx#memory
[onnx.md#one-reading-for-all-lengths]: crate::guide::onnx#one-reading-for-all-lengths
[onnx.md#what-is-mapped]: crate::guide::onnx#what-is-mapped
[openvino.md]: crate::guide::openvino
[ops.md]: crate::guide::ops
[ops.md#who-runs-which]: crate::guide::ops#who-runs-which
[performance.md]: crate::guide::performance
[performance.md#a-graph-as-a-whole]: crate::guide::performance#a-graph-as-a-whole
[performance.md#reading-a-plan]: crate::guide::performance#reading-a-plan
[performance.md#shapes-that-grow]: crate::guide::performance#shapes-that-grow
[performance.md#what-to-do-about-it]: crate::guide::performance#what-to-do-about-it
[performance.md#why-was-this-not-fused]: crate::guide::performance#why-was-this-not-fused
[platforms.md]: crate::guide::platforms
[python.md]: crate::guide::python
[python.md#how-fast-it-is]: crate::guide::python#how-fast-it-is
[pytorch.md]: crate::guide::pytorch
[rust.md#a-graph-for-any-shape]: crate::guide::rust#a-graph-for-any-shape
[sessions.md]: crate::guide::sessions
[sessions.md#state]: crate::guide::sessions#state
[supported.md#sizes]: crate::guide::supported#sizes
[threads.md]: crate::guide::threads
[threads.md#workers]: crate::guide::threads#workers
[troubleshooting.md]: crate::guide::troubleshooting

"};
}
