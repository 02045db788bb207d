/* Configuration of Sterna's stand-in for libdnnl.so.3: an engine of the CPU, no GPU, no SYCL and no TBB.
 *
 * oneDNN's other headers include this header, if its folder is searched before theirs, in place of their own of this name,
 * which says what the released library was built with.
 */

/* The guard is that of oneDNN's header of this name, so that the first of the two that is found counts. */
#ifndef ONEAPI_DNNL_DNNL_CONFIG_H
#define ONEAPI_DNNL_DNNL_CONFIG_H

/* What oneDNN's headers put before each function and each function that is on its way out. */
#define DNNL_API __attribute__((visibility("default")))
#define DNNL_DEPRECATED __attribute__((deprecated))

/* Kinds of runtimes, in the fields of dnnl_version_t. */
#define DNNL_RUNTIME_NONE 0u
#define DNNL_RUNTIME_SEQ 1u
#define DNNL_RUNTIME_OMP 2u
#define DNNL_RUNTIME_TBB 4u
#define DNNL_RUNTIME_THREADPOOL 8u
#define DNNL_RUNTIME_OCL 256u
#define DNNL_RUNTIME_SYCL 512u
#define DNNL_RUNTIME_DPCPP DNNL_RUNTIME_SYCL
#define DNNL_RUNTIME_ZE 1024u

#define DNNL_VENDOR_NONE 0u
#define DNNL_VENDOR_INTEL 1u
#define DNNL_VENDOR_NVIDIA 2u
#define DNNL_VENDOR_AMD 4u
#define DNNL_VENDOR_GENERIC 8u

/* The threads are the library's own: a client has no runtime to bring or to shut down. */
#define DNNL_CPU_THREADING_RUNTIME DNNL_RUNTIME_SEQ
#define DNNL_CPU_RUNTIME DNNL_RUNTIME_SEQ
#define DNNL_GPU_RUNTIME DNNL_RUNTIME_NONE
#define DNNL_GPU_VENDOR DNNL_VENDOR_NONE

#define DNNL_EXPERIMENTAL_GROUPED_MEMORY 0
#define ONEDNN_BUILD_GRAPH

#endif
