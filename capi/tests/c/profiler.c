/* A profiler is told of each phase and each execution that ended well, from the thread that executed. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "check.h"

enum { LENGTH = 1000, ROUNDS = 50, THREADS = 3 };

/* What several threads are told. */
struct log {
    pthread_mutex_t lock;
    size_t phases, executions;
    uint64_t of_phases, of_executions;
};

static void phase_ended(void *user_data, const sterna_phase_profile_t *told) {
    struct log *log = user_data;
    REQUIRE(told->op_num == 1 && told->ops[0].kind == STERNA_OP_SELECT && told->ops[0].id == 0);
    REQUIRE(told->index == 0 && told->phase_num == 1 && told->kind == STERNA_PHASE_KIND_MAP);
    REQUIRE(strcmp(sterna_phase_kind_string(told->kind), "map") == 0);
    REQUIRE(told->tasks == 1 && told->threads == 1 && told->bytes == LENGTH * 13 && told->flops == 0);
    REQUIRE(pthread_mutex_lock(&log->lock) == 0);
    log->phases++;
    log->of_phases += told->nanoseconds;
    REQUIRE(pthread_mutex_unlock(&log->lock) == 0);
}

static void execution_ended(void *user_data, const sterna_execution_profile_t *told) {
    struct log *log = user_data;
    REQUIRE(told->op_num == 1 && told->ops[0].kind == STERNA_OP_SELECT && told->ops[0].id == 0);
    REQUIRE(told->bytes == LENGTH * 13 && told->flops == 0);
    REQUIRE(pthread_mutex_lock(&log->lock) == 0);
    log->executions++;
    log->of_executions += told->nanoseconds;
    REQUIRE(log->phases >= log->executions); /* an execution is told of after its phases */
    REQUIRE(pthread_mutex_unlock(&log->lock) == 0);
}

static sterna_engine_t *engine_with(sterna_profiler_phase_t phase, sterna_profiler_execution_t execution,
                                    struct log *log) {
    sterna_profiler_t profiler = {phase, execution, log};
    sterna_engine_t *engine;
    sterna_engine_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.threads = 1;
    options.profiler = &profiler;
    OK(sterna_engine_create_with_options(&engine, &options));
    memset(&options, 0xab, sizeof options);
    memset(&profiler, 0xab, sizeof profiler); /* the engine has a copy */
    return engine;
}

static void *execute_often(void *user_data) {
    struct select s;
    compile_select(&s, user_data, LENGTH, 1);
    OK(make_tensors(&s, LENGTH, 1));
    for (int i = 0; i < ROUNDS; i++) {
        OK(execute_select(&s));
    }
    check_result(&s, LENGTH);
    destroy_select(&s);
    return NULL;
}

static void counts(struct log *log, size_t phases, size_t executions) {
    REQUIRE(log->phases == phases && log->executions == executions);
    *log = (struct log) {.lock = PTHREAD_MUTEX_INITIALIZER};
}

int main(void) {
    static struct log log = {.lock = PTHREAD_MUTEX_INITIALIZER};

    sterna_engine_t *both = engine_with(phase_ended, execution_ended, &log);
    execute_often(both);
    REQUIRE(log.of_executions > 0 && log.of_phases <= log.of_executions);
    counts(&log, ROUNDS, ROUNDS);

    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, execute_often, both) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    }
    counts(&log, THREADS * ROUNDS, THREADS * ROUNDS);

    /* One function is enough; the engine is destroyed before the last execution. */
    sterna_engine_t *phases = engine_with(phase_ended, NULL, &log);
    struct select s;
    compile_select(&s, phases, LENGTH, 1);
    OK(make_tensors(&s, LENGTH, 1));
    OK(sterna_engine_destroy(phases));
    OK(execute_select(&s));
    counts(&log, 1, 0);

    /* An execution that fails is not told. */
    const sterna_tensor_t *none[] = {s.tensor[COND], s.tensor[THEN], NULL}, *to[] = {s.tensor[DST]};
    ENDS(INVALID_ARGUMENTS, sterna_compiled_partition_execute(s.compiled, s.stream, 3, none, 1, to));
    counts(&log, 0, 0);
    destroy_select(&s);

    sterna_engine_t *silent;
    const sterna_profiler_t empty = {NULL, NULL, &log};
    sterna_engine_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.profiler = &empty;
    ENDS(INVALID_ARGUMENTS, sterna_engine_create_with_options(&silent, &options));
    REQUIRE(strcmp(sterna_last_error_message(), "`profiler` has no function") == 0);
    options.profiler = (const sterna_profiler_t *)((const char *)&empty + 1);
    ENDS(INVALID_ARGUMENTS, sterna_engine_create_with_options(&silent, &options));
    REQUIRE(strcmp(sterna_last_error_message(), "`profiler` is not aligned") == 0);
    OK(sterna_engine_destroy(both));
    return 0;
}
