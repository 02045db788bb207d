/* Prints every name that the functions of dnnl_debug.h know, by number and, of the enumerators, by what they are called.
 * The header is the stand-in's; with oneDNN's headers behind it, the types are oneDNN's. */
#include <dnnl_debug.h>
#include <oneapi/dnnl/dnnl_debug.h>
#include <stdio.h>
#include <string.h>

enum { LAST = 0x23000 };

#define BY_NUMBER(function, type)                                                       \
    do {                                                                                \
        for (long number = -1; number <= LAST; number++) {                              \
            const char *name = function((type)number);                                  \
            if (strncmp(name, "unknown", 7) != 0) printf(#function " %#lx: %s\n", (unsigned long)number, name); \
        }                                                                               \
        printf(#function " of none: %s\n", function((type)9999));                       \
        if (strcmp(function((type)-1), function((type)9999)) != 0) return 1;            \
    } while (0)

#define SHOW(function, enumerator) printf(#enumerator " is %#x: %s\n", (unsigned)enumerator, function(enumerator))

int main(void) {
    BY_NUMBER(dnnl_status2str, dnnl_status_t);
    BY_NUMBER(dnnl_dt2str, dnnl_data_type_t);
    BY_NUMBER(dnnl_engine_kind2str, dnnl_engine_kind_t);
    BY_NUMBER(dnnl_fpmath_mode2str, dnnl_fpmath_mode_t);
    BY_NUMBER(dnnl_accumulation_mode2str, dnnl_accumulation_mode_t);
    BY_NUMBER(dnnl_scratchpad_mode2str, dnnl_scratchpad_mode_t);
    BY_NUMBER(dnnl_cpu_isa2str, dnnl_cpu_isa_t);
    BY_NUMBER(dnnl_cpu_isa_hints2str, dnnl_cpu_isa_hints_t);
    BY_NUMBER(dnnl_runtime2str, unsigned);

    SHOW(dnnl_status2str, dnnl_success);
    SHOW(dnnl_status2str, dnnl_out_of_memory);
    SHOW(dnnl_status2str, dnnl_invalid_arguments);
    SHOW(dnnl_status2str, dnnl_unimplemented);
    SHOW(dnnl_status2str, dnnl_last_impl_reached);
    SHOW(dnnl_status2str, dnnl_runtime_error);
    SHOW(dnnl_status2str, dnnl_not_required);
    SHOW(dnnl_status2str, dnnl_invalid_graph);
    SHOW(dnnl_status2str, dnnl_invalid_graph_op);
    SHOW(dnnl_status2str, dnnl_invalid_shape);
    SHOW(dnnl_status2str, dnnl_invalid_data_type);
    SHOW(dnnl_dt2str, dnnl_data_type_undef);
    SHOW(dnnl_dt2str, dnnl_f16);
    SHOW(dnnl_dt2str, dnnl_bf16);
    SHOW(dnnl_dt2str, dnnl_f32);
    SHOW(dnnl_dt2str, dnnl_s32);
    SHOW(dnnl_dt2str, dnnl_s8);
    SHOW(dnnl_dt2str, dnnl_u8);
    SHOW(dnnl_dt2str, dnnl_f64);
    SHOW(dnnl_dt2str, dnnl_boolean);
    SHOW(dnnl_dt2str, dnnl_f8_e5m2);
    SHOW(dnnl_dt2str, dnnl_f8_e4m3);
    SHOW(dnnl_dt2str, dnnl_s4);
    SHOW(dnnl_dt2str, dnnl_u4);
    SHOW(dnnl_dt2str, dnnl_e8m0);
    SHOW(dnnl_dt2str, dnnl_f4_e2m1);
    SHOW(dnnl_dt2str, dnnl_f4_e3m0);
    SHOW(dnnl_dt2str, dnnl_s64);
    SHOW(dnnl_dt2str, dnnl_data_type_max);
    SHOW(dnnl_engine_kind2str, dnnl_any_engine);
    SHOW(dnnl_engine_kind2str, dnnl_cpu);
    SHOW(dnnl_engine_kind2str, dnnl_gpu);
    SHOW(dnnl_fpmath_mode2str, dnnl_fpmath_mode_strict);
    SHOW(dnnl_fpmath_mode2str, dnnl_fpmath_mode_bf16);
    SHOW(dnnl_fpmath_mode2str, dnnl_fpmath_mode_f16);
    SHOW(dnnl_fpmath_mode2str, dnnl_fpmath_mode_any);
    SHOW(dnnl_fpmath_mode2str, dnnl_fpmath_mode_tf32);
    SHOW(dnnl_accumulation_mode2str, dnnl_accumulation_mode_strict);
    SHOW(dnnl_accumulation_mode2str, dnnl_accumulation_mode_relaxed);
    SHOW(dnnl_accumulation_mode2str, dnnl_accumulation_mode_any);
    SHOW(dnnl_accumulation_mode2str, dnnl_accumulation_mode_s32);
    SHOW(dnnl_accumulation_mode2str, dnnl_accumulation_mode_f32);
    SHOW(dnnl_accumulation_mode2str, dnnl_accumulation_mode_f16);
    SHOW(dnnl_scratchpad_mode2str, dnnl_scratchpad_mode_library);
    SHOW(dnnl_scratchpad_mode2str, dnnl_scratchpad_mode_user);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_default);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_sse41);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_avx);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_avx2);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_avx2_vnni);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_avx2_vnni_2);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_avx512_core);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_avx512_core_vnni);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_avx512_core_bf16);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_avx10_1_512);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_avx512_core_fp16);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_avx10_1_512_amx);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_avx512_core_amx);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_avx10_1_512_amx_fp16);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_avx512_core_amx_fp16);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_avx10_2);
    SHOW(dnnl_cpu_isa2str, dnnl_cpu_isa_avx10_2_amx_2);
    SHOW(dnnl_cpu_isa_hints2str, dnnl_cpu_isa_no_hints);
    SHOW(dnnl_cpu_isa_hints2str, dnnl_cpu_isa_prefer_ymm);
    SHOW(dnnl_runtime2str, DNNL_RUNTIME_NONE);
    SHOW(dnnl_runtime2str, DNNL_RUNTIME_SEQ);
    SHOW(dnnl_runtime2str, DNNL_RUNTIME_OMP);
    SHOW(dnnl_runtime2str, DNNL_RUNTIME_TBB);
    SHOW(dnnl_runtime2str, DNNL_RUNTIME_THREADPOOL);
    SHOW(dnnl_runtime2str, DNNL_RUNTIME_OCL);
    SHOW(dnnl_runtime2str, DNNL_RUNTIME_SYCL);
    SHOW(dnnl_runtime2str, DNNL_RUNTIME_ZE);
    return 0;
}
