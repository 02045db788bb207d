//! How crates are compiled for release, as their manifests say.

use std::fs;
use std::path::Path;

/// Folders of the workspace whose crates are no part of what is shipped.
const NOT_SHIPPED: &[&str] = &["tests/"];

/// Generic code of the library is compiled in the crate that uses it. With LTO, the compiler makes vectors of
/// all loops when it links, if the crate that it links is at level 2 or 3: at `s`, conversions and pointwise
/// functions took five times as long, up to twenty times.
#[test]
fn crates_that_link_the_library_make_vectors_of_its_loops() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_else(|why| panic!("{path:?}: {why}"));
    let workspace = read(&root.join("Cargo.toml"));
    let members = workspace.lines().find_map(|line| line.strip_prefix("members = [")).unwrap();
    let members: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
    let mut linked = Vec::new();
    for member in members.iter().filter(|member| !NOT_SHIPPED.iter().any(|folder| member.starts_with(folder)))
    {
        let manifest = read(&root.join(member).join("Cargo.toml"));
        if manifest.contains("\"cdylib\"") || manifest.contains("[[bin]]") {
            let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap();
            linked.push(name.trim_matches('"').to_owned());
        }
    }
    assert!(linked.len() >= 4, "the reader saw only {linked:?}");
    let is_fast =
        |name: &String| workspace.contains(&format!("[profile.release.package.{name}]\nopt-level = 3\n"));
    let slow: Vec<&String> = linked.iter().filter(|name| !is_fast(name)).collect();
    assert!(slow.is_empty(), "not at opt-level 3: {slow:?}");
}
