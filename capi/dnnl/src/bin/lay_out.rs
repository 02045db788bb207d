//! Lays libdnnl.so.3 out as clients of oneDNN expect it: `sterna-dnnl DIR` writes `DIR/libdnnl.so.3`, the
//! link `DIR/libdnnl.so`, by which linkers find it, and the headers that are its own to `DIR/include`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

/// The headers by their paths in the folder, with what is in them.
const HEADERS: &[(&str, &str)] = &[
    ("include/dnnl_config.h", include_str!("../../include/dnnl_config.h")),
    ("include/oneapi/dnnl/dnnl_config.h", include_str!("../../include/oneapi/dnnl/dnnl_config.h")),
    ("include/dnnl_debug.h", include_str!("../../include/dnnl_debug.h")),
    ("include/oneapi/dnnl/dnnl_debug.h", include_str!("../../include/oneapi/dnnl/dnnl_debug.h")),
];

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    let (Some(dir), None) = (args.next(), args.next()) else {
        eprintln!("usage: sterna-dnnl DIR");
        return ExitCode::from(2);
    };
    match lay_out(Path::new(&dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", Path::new(&dir).display());
            ExitCode::FAILURE
        }
    }
}

fn lay_out(dir: &Path) -> io::Result<()> {
    let built = built()?;
    fs::create_dir_all(dir)?;
    let (library, link) = (dir.join("libdnnl.so.3"), dir.join("libdnnl.so"));
    for old in [&library, &link] {
        match fs::remove_file(old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::copy(built, &library)?;
    link_to("libdnnl.so.3", &link)?;
    println!("{}\n{} -> libdnnl.so.3", library.display(), link.display());
    for (path, text) in HEADERS {
        let header = dir.join(path);
        fs::create_dir_all(header.parent().unwrap_or(dir))?;
        fs::write(&header, text)?;
        println!("{}", header.display());
    }
    Ok(())
}

#[cfg(unix)]
fn link_to(library: &str, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(library, link)
}

#[cfg(not(unix))]
fn link_to(_library: &str, _link: &Path) -> io::Result<()> {
    Err(io::Error::other("clients look for libdnnl.so.3 on Unix only"))
}

/// The library that cargo built along with this program.
fn built() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let folder = program.parent().unwrap_or(Path::new("."));
    [folder.join("libdnnl.so"), folder.join("deps/libdnnl.so")]
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| io::Error::other("libdnnl.so is not beside this program; run `cargo dnnl DIR`"))
}
