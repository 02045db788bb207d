/* A process whose engine has workers forks; parent and child both go on, on the old engine and on new ones. */
#define _POSIX_C_SOURCE 200809L
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { LENGTH = 1 << 20 }; /* 13 MiB move, which is worth waking workers for */
enum { SMALL = 1 << 16 };  /* 0.8 MiB move, which is worth workers that are awake */

static void run(struct select *s) {
    memset(s->memory[DST], 0, LENGTH * sizeof(float));
    OK(execute_select(s));
    check_result(s, LENGTH);
}

/* Executions that follow each other, so that a worker is awake at the end. */
static void run_small(struct select *s) {
    memset(s->memory[DST], 0, SMALL * sizeof(float));
    for (int i = 0; i < 300; i++) {
        OK(execute_select(s));
    }
    check_result(s, SMALL);
}

int main(void) {
    alarm(120); /* instead of hanging */
    sterna_engine_t *engine;
    OK(make_engine(&engine, NULL, 3));
    struct select s;
    compile_select(&s, engine, LENGTH, 1);
    OK(make_tensors(&s, LENGTH, 1));
    run(&s);
    struct select small;
    compile_select(&small, engine, SMALL, 1);
    OK(make_tensors(&small, SMALL, 1));
    run_small(&small);

    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(60);
        run_small(&small);
        run(&s);
        run_small(&small);
        run(&s);
        struct select other;
        compile_select(&other, engine, LENGTH, 1);
        OK(make_tensors(&other, LENGTH, 1));
        run(&other);
        /* A child of the child, too. */
        pid_t grandchild = fork();
        REQUIRE(grandchild >= 0);
        if (grandchild == 0) {
            alarm(30);
            run(&s);
            run_small(&small);
            exit(0);
        }
        int end;
        REQUIRE(waitpid(grandchild, &end, 0) == grandchild && WIFEXITED(end) && WEXITSTATUS(end) == 0);
        destroy_select(&other);
        destroy_select(&small);
        destroy_select(&s);
        OK(sterna_engine_destroy(engine));
        exit(0); /* through the handlers of exit, as programs do */
    }
    run(&s);
    run_small(&small);
    int end;
    REQUIRE(waitpid(child, &end, 0) == child && WIFEXITED(end) && WEXITSTATUS(end) == 0);
    run(&s);
    destroy_select(&small);
    destroy_select(&s);
    OK(sterna_engine_destroy(engine));
    return 0;
}
