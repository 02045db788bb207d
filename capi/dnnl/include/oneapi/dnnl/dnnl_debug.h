/* Names of numbers: of statuses, data types, engine kinds, modes, runtimes and instruction sets.
 *
 * This header comes with Sterna's stand-in for libdnnl.so.3. It declares those of oneDNN's name functions that the
 * stand-in has; the types are oneDNN's own if its headers are at hand, and are declared here if not. The text of a name is
 * constant and must not be freed; a number that stands for nothing is called "unknown" and what it was asked as. */

/* The guard is that of oneDNN's header of this name, so that the first of the two that is found counts. */
#ifndef ONEAPI_DNNL_DNNL_DEBUG_H
#define ONEAPI_DNNL_DNNL_DEBUG_H

#ifdef __has_include
#if __has_include("oneapi/dnnl/dnnl_types.h")
#define STERNA_DNNL_HAS_TYPES
#endif
#endif

#ifdef STERNA_DNNL_HAS_TYPES
#include "oneapi/dnnl/dnnl_types.h"
#else

typedef enum {
    dnnl_success = 0,
    dnnl_out_of_memory = 1,
    dnnl_invalid_arguments = 2,
    dnnl_unimplemented = 3,
    dnnl_last_impl_reached = 4,
    dnnl_runtime_error = 5,
    dnnl_not_required = 6,
    dnnl_invalid_graph = 7,
    dnnl_invalid_graph_op = 8,
    dnnl_invalid_shape = 9,
    dnnl_invalid_data_type = 10
} dnnl_status_t;

typedef enum {
    dnnl_data_type_undef = 0,
    dnnl_f16 = 1,
    dnnl_bf16 = 2,
    dnnl_f32 = 3,
    dnnl_s32 = 4,
    dnnl_s8 = 5,
    dnnl_u8 = 6,
    dnnl_f64 = 7,
    dnnl_boolean = 8,
    dnnl_f8_e5m2 = 9,
    dnnl_f8_e4m3 = 10,
    dnnl_s4 = 11,
    dnnl_u4 = 12,
    dnnl_e8m0 = 13,
    dnnl_f4_e2m1 = 14,
    dnnl_f4_e3m0 = 15,
    dnnl_s64 = 16,
    dnnl_data_type_max = 0x7fff
} dnnl_data_type_t;

typedef enum { dnnl_any_engine = 0, dnnl_cpu = 1, dnnl_gpu = 2 } dnnl_engine_kind_t;

typedef enum {
    dnnl_fpmath_mode_strict = 0,
    dnnl_fpmath_mode_bf16 = 1,
    dnnl_fpmath_mode_f16 = 2,
    dnnl_fpmath_mode_any = 3,
    dnnl_fpmath_mode_tf32 = 4
} dnnl_fpmath_mode_t;

typedef enum {
    dnnl_accumulation_mode_strict = 0,
    dnnl_accumulation_mode_relaxed = 1,
    dnnl_accumulation_mode_any = 2,
    dnnl_accumulation_mode_s32 = 3,
    dnnl_accumulation_mode_f32 = 4,
    dnnl_accumulation_mode_f16 = 5
} dnnl_accumulation_mode_t;

typedef enum { dnnl_scratchpad_mode_library = 0, dnnl_scratchpad_mode_user = 1 } dnnl_scratchpad_mode_t;

typedef enum {
    dnnl_cpu_isa_default = 0x0,
    dnnl_cpu_isa_sse41 = 0x1,
    dnnl_cpu_isa_avx = 0x3,
    dnnl_cpu_isa_avx2 = 0x7,
    dnnl_cpu_isa_avx2_vnni = 0xf,
    dnnl_cpu_isa_avx2_vnni_2 = 0x1f,
    dnnl_cpu_isa_avx512_core = 0x27,
    dnnl_cpu_isa_avx512_core_vnni = 0x67,
    dnnl_cpu_isa_avx512_core_bf16 = 0xe7,
    dnnl_cpu_isa_avx10_1_512 = 0x1ef,
    dnnl_cpu_isa_avx512_core_fp16 = 0x1ef,
    dnnl_cpu_isa_avx10_1_512_amx = 0xfef,
    dnnl_cpu_isa_avx512_core_amx = 0xfef,
    dnnl_cpu_isa_avx10_1_512_amx_fp16 = 0x1fef,
    dnnl_cpu_isa_avx512_core_amx_fp16 = 0x1fef,
    dnnl_cpu_isa_avx10_2 = 0x201ff,
    dnnl_cpu_isa_avx10_2_amx_2 = 0x22fff
} dnnl_cpu_isa_t;

typedef enum { dnnl_cpu_isa_no_hints = 0, dnnl_cpu_isa_prefer_ymm = 1 } dnnl_cpu_isa_hints_t;

#define DNNL_RUNTIME_NONE 0u
#define DNNL_RUNTIME_SEQ 1u
#define DNNL_RUNTIME_OMP 2u
#define DNNL_RUNTIME_TBB 4u
#define DNNL_RUNTIME_THREADPOOL 8u
#define DNNL_RUNTIME_OCL 256u
#define DNNL_RUNTIME_SYCL 512u
#define DNNL_RUNTIME_ZE 1024u

#endif /* STERNA_DNNL_HAS_TYPES */

#ifdef __cplusplus
extern "C" {
#endif

const char *dnnl_status2str(dnnl_status_t v);
const char *dnnl_dt2str(dnnl_data_type_t v);
const char *dnnl_engine_kind2str(dnnl_engine_kind_t v);
const char *dnnl_fpmath_mode2str(dnnl_fpmath_mode_t v);
const char *dnnl_accumulation_mode2str(dnnl_accumulation_mode_t v);
const char *dnnl_scratchpad_mode2str(dnnl_scratchpad_mode_t v);
const char *dnnl_cpu_isa2str(dnnl_cpu_isa_t v);
const char *dnnl_cpu_isa_hints2str(dnnl_cpu_isa_hints_t v);

/* One of the DNNL_RUNTIME_* numbers. */
const char *dnnl_runtime2str(unsigned v);

#ifdef __cplusplus
}
#endif

#endif
