//! How libdnnl.so is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let os = std::env::var("CARGO_CFG_TARGET_OS").expect("cargo names the system");
    if os == "linux" {
        // The name by which clients of oneDNN 3 ask the loader for the library.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdnnl.so.3");
        // The `sterna_*` functions come out of an archive, and rustc would export them. Its own version
        // script is the only one that every linker takes, so what comes out of archives is hidden beside it.
        println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    }
}
