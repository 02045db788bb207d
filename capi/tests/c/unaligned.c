/* Allocators that do not align as they are asked to, as plain `malloc` does not: tensors and scratch memory are had from
 * them all the same. Each block is asked for and given back as the header says, by the address that was handed out. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

enum { LENGTH = 3000, MAX_CALLS = 64, LINE = 64 };

/* What was asked for, call by call. */
static struct {
    size_t size, alignment;
    char *block;   /* the address that was handed out */
    void *memory;  /* what `free` takes */
    int is_out;
} call[MAX_CALLS];
static int calls, out, fail_at = -1;
static size_t off;

static void *take(size_t size, size_t alignment) {
    REQUIRE(calls < MAX_CALLS);
    if (calls == fail_at) {
        call[calls].size = size;
        calls++;
        return NULL;
    }
    void *memory = NULL;
    REQUIRE(posix_memalign(&memory, LINE, size + off) == 0);
    memset(memory, 0x5a, size + off);
    call[calls].size = size;
    call[calls].alignment = alignment;
    call[calls].block = (char *)memory + off;
    call[calls].memory = memory;
    call[calls].is_out = 1;
    out++;
    return call[calls++].block;
}

static void give(void *block) {
    for (int i = calls - 1; i >= 0; i--) {
        if (call[i].is_out && call[i].block == block) {
            call[i].is_out = 0;
            out--;
            free(call[i].memory);
            return;
        }
    }
    fprintf(stderr, "off by %zu: a block comes back that is not out\n", off);
    exit(1);
}

static sterna_engine_t *engine_off_by(size_t by) {
    sterna_allocator_t *allocator;
    sterna_engine_t *engine;
    off = by;
    calls = 0;
    OK(sterna_allocator_create(&allocator, take, give));
    OK(make_engine(&engine, allocator, 2));
    OK(sterna_allocator_destroy(allocator));
    return engine;
}

/* A tensor of its own memory, by the size of its elements. */
static void one_tensor(size_t by, sterna_data_type_t type, size_t element) {
    sterna_engine_t *engine = engine_off_by(by);
    sterna_logical_tensor_t desc;
    sterna_tensor_t *tensor;
    void *memory;
    const size_t size = LENGTH * element;
    describe(&desc, 0, type, LENGTH);
    OK(sterna_tensor_create(&tensor, &desc, engine, STERNA_MEMORY_ALLOCATE));
    OK(sterna_tensor_get_data_handle(tensor, &memory));
    REQUIRE(call[0].size == size && call[0].alignment == LINE);
    if (by % element == 0) {
        REQUIRE(calls == 1 && out == 1);
        REQUIRE((char *)memory == call[0].block);
    } else {
        REQUIRE(calls == 2 && out == 1 && !call[0].is_out);
        REQUIRE(call[1].size == size + LINE - 1 && call[1].alignment == LINE);
        REQUIRE((uintptr_t)memory % LINE == 0);
        REQUIRE((char *)memory >= call[1].block && (char *)memory + size <= call[1].block + call[1].size);
    }
    for (size_t i = 0; i < size; i++) {
        REQUIRE(((char *)memory)[i] == 0);
    }
    memset(memory, 0x77, size);
    OK(sterna_engine_destroy(engine));
    OK(sterna_tensor_destroy(tensor));
    REQUIRE(out == 0);
}

/* Tensors and scratch memory, through two executions; says at which call scratch memory was asked for. */
static int workflow(size_t by) {
    struct select s;
    sterna_engine_t *engine = engine_off_by(by);
    compile_select(&s, engine, LENGTH, 2); /* a strided operand goes through scratch */
    OK(make_tensors(&s, LENGTH, 2));
    const int scratch = calls;
    OK(execute_select(&s));
    check_result(&s, LENGTH);
    const int after = calls;
    memset(s.memory[DST], 0, LENGTH * sizeof(float));
    OK(execute_select(&s));
    check_result(&s, LENGTH);
    REQUIRE(calls == after); /* scratch memory is kept */
    REQUIRE(call[scratch].alignment == LINE);
    if (by == 0) {
        REQUIRE(after == scratch + 1 && call[scratch].is_out);
    } else {
        REQUIRE(after == scratch + 2 && !call[scratch].is_out && call[scratch + 1].is_out);
        REQUIRE(call[scratch + 1].size == call[scratch].size + LINE - 1 && call[scratch + 1].alignment == LINE);
    }
    /* Memory anew, over what is there. */
    OK(sterna_tensor_set_data_handle(s.tensor[DST], STERNA_MEMORY_ALLOCATE));
    OK(sterna_tensor_get_data_handle(s.tensor[DST], &s.memory[DST]));
    OK(execute_select(&s));
    check_result(&s, LENGTH);
    OK(sterna_engine_destroy(engine));
    destroy_select(&s);
    REQUIRE(out == 0);
    return scratch;
}

/* The block that is asked for after an unaligned one is not there. */
static void no_second_block(size_t by, int scratch) {
    struct select s;
    sterna_engine_t *engine = engine_off_by(by);
    compile_select(&s, engine, LENGTH, 2);
    OK(make_tensors(&s, LENGTH, 2));
    memset(s.memory[DST], 0x11, LENGTH * sizeof(float));
    fail_at = scratch + 1;
    ENDS(OUT_OF_MEMORY, execute_select(&s));
    REQUIRE(((char *)s.memory[DST])[0] == 0x11);
    REQUIRE(strstr(sterna_last_error_message(), "allocator") != NULL);
    fail_at = -1;
    OK(execute_select(&s));
    check_result(&s, LENGTH);
    if (by % sizeof(float) != 0) {
        fail_at = calls + 1;
        ENDS(OUT_OF_MEMORY, sterna_tensor_set_data_handle(s.tensor[DST], STERNA_MEMORY_ALLOCATE));
        fail_at = -1;
    }
    OK(execute_select(&s));
    check_result(&s, LENGTH);
    OK(sterna_engine_destroy(engine));
    destroy_select(&s);
    REQUIRE(out == 0);
}

int main(void) {
    static const size_t offs[] = {0, 1, 2, 4, 8, 16, 32, 63};
    static const struct {
        sterna_data_type_t type;
        size_t size;
    } types[] = {
        {STERNA_DATA_TYPE_BOOLEAN, 1}, {STERNA_DATA_TYPE_U8, 1},  {STERNA_DATA_TYPE_F16, 2},
        {STERNA_DATA_TYPE_F32, 4},     {STERNA_DATA_TYPE_S32, 4}, {STERNA_DATA_TYPE_F64, 8},
        {STERNA_DATA_TYPE_S64, 8},
    };
    for (size_t i = 0; i < sizeof offs / sizeof *offs; i++) {
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            one_tensor(offs[i], types[t].type, types[t].size);
        }
        const int scratch = workflow(offs[i]);
        if (offs[i] != 0) {
            no_second_block(offs[i], scratch);
        }
    }

    /* A tensor of no bytes asks for none. */
    sterna_engine_t *engine = engine_off_by(1);
    sterna_logical_tensor_t desc;
    sterna_tensor_t *tensor;
    describe(&desc, 0, STERNA_DATA_TYPE_F32, 0);
    OK(sterna_tensor_create(&tensor, &desc, engine, STERNA_MEMORY_ALLOCATE));
    OK(sterna_tensor_destroy(tensor));
    /* What has no size is refused before memory is asked for. */
    OK(sterna_logical_tensor_init(&desc, 0, STERNA_DATA_TYPE_F32, 2, STERNA_LAYOUT_TYPE_STRIDED,
                                  STERNA_TENSOR_PROPERTY_UNDEF));
    ENDS(INVALID_ARGUMENTS, sterna_tensor_create(&tensor, &desc, engine, STERNA_MEMORY_ALLOCATE));
    describe(&desc, 0, STERNA_DATA_TYPE_F4_E2M1, LENGTH);
    ENDS(INVALID_ARGUMENTS, sterna_tensor_create(&tensor, &desc, engine, STERNA_MEMORY_ALLOCATE));
    REQUIRE(calls == 0);
    OK(sterna_engine_destroy(engine));
    return 0;
}
