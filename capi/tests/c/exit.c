/* A process exits while workers live: by returning from main, and by a call of exit on another thread. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { LENGTH = 1 << 20 };

static void *leave(void *argument) {
    (void)argument;
    exit(0);
}

static void start_workers(void) {
    sterna_engine_t *engine;
    OK(make_engine(&engine, NULL, 3));
    struct select s;
    compile_select(&s, engine, LENGTH, 1);
    OK(make_tensors(&s, LENGTH, 1));
    OK(execute_select(&s));
    check_result(&s, LENGTH);
    /* Destroyed but for the engine, which this program forgets, and with it its workers. */
    destroy_select(&s);
}

int main(void) {
    alarm(60);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(30);
        start_workers();
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, leave, NULL) == 0);
        pthread_join(thread, NULL);
        return 1; /* not reached */
    }
    start_workers();
    int end;
    REQUIRE(waitpid(child, &end, 0) == child && WIFEXITED(end) && WEXITSTATUS(end) == 0);
    return 0;
}
