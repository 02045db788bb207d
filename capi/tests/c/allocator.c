/* An allocator that fails at its n-th call, for one n after the other: what fails is out_of_memory, whatever has been
 * allocated goes back, and all memory of tensors and scratch comes from it. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

enum { LENGTH = 3000, CALLS = 20 };

static int calls, fail_at, blocks;
static size_t bytes;

static void *allocate(size_t size, size_t alignment) {
    void *block = NULL;
    if (++calls == fail_at || posix_memalign(&block, alignment, size) != 0) {
        return NULL;
    }
    blocks++;
    bytes += size;
    return block;
}

static void release(void *block) {
    REQUIRE(block != NULL);
    blocks--;
    free(block);
}

/* The whole workflow, with two executions; says how many steps ran out of memory. */
static int workflow(void) {
    sterna_allocator_t *allocator;
    sterna_engine_t *engine;
    struct select s;
    int failures = 0;
    OK(sterna_allocator_create(&allocator, allocate, release));
    OK(make_engine(&engine, allocator, 2));
    OK(sterna_allocator_destroy(allocator));
    compile_select(&s, engine, LENGTH, 2); /* a strided operand goes through scratch */
    sterna_status_t status = make_tensors(&s, LENGTH, 2);
    if (status == STERNA_STATUS_OUT_OF_MEMORY) {
        REQUIRE(strstr(sterna_last_error_message(), "allocator") != NULL);
        failures++;
    } else {
        REQUIRE(status == STERNA_STATUS_SUCCESS);
        for (int i = 0; i < 2; i++) {
            memset(s.memory[DST], 0, LENGTH * sizeof(float));
            status = execute_select(&s);
            if (status == STERNA_STATUS_OUT_OF_MEMORY) {
                failures++;
                continue;
            }
            REQUIRE(status == STERNA_STATUS_SUCCESS);
            check_result(&s, LENGTH);
        }
        /* Memory anew, over what is there. */
        status = sterna_tensor_set_data_handle(s.tensor[DST], STERNA_MEMORY_ALLOCATE);
        if (status == STERNA_STATUS_OUT_OF_MEMORY) {
            failures++;
        } else {
            REQUIRE(status == STERNA_STATUS_SUCCESS);
            OK(sterna_tensor_get_data_handle(s.tensor[DST], &s.memory[DST]));
        }
        status = execute_select(&s);
        REQUIRE(status == STERNA_STATUS_SUCCESS || status == STERNA_STATUS_OUT_OF_MEMORY);
    }
    /* The engine goes first: what it gave goes back all the same. */
    OK(sterna_engine_destroy(engine));
    destroy_select(&s);
    REQUIRE(blocks == 0);
    return failures;
}

int main(void) {
    REQUIRE(workflow() == 0);
    const int needed = calls;
    /* Four tensors, scratch, and a tensor anew. */
    REQUIRE(needed == 6);
    REQUIRE(bytes >= LENGTH * (1 + 2 * 4 + 4 + 4 + 4));
    for (fail_at = 1; fail_at <= CALLS; fail_at++) {
        calls = 0;
        const int failures = workflow();
        if (failures != (fail_at <= needed)) {
            fprintf(stderr, "call %d failed: %d steps ran out of memory\n", fail_at, failures);
            return 1;
        }
    }
    return 0;
}
