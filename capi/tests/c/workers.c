/* Workers start with the first execution that is worth them: not with the library, not with an engine, and never for
 * an engine that runs on the caller's thread alone; and not for executions of some 800 KB, if they may not stay awake.
 * They end with their engine. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <time.h>

#include "check.h"

enum { LARGE = 1 << 20, MIDDLE = 1 << 16, SMALL = 100 };

/* The threads of this process; 0 where the system does not tell. */
static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    if (tasks != NULL) {
        for (const struct dirent *task; (task = readdir(tasks)) != NULL;) {
            count += task->d_name[0] != '.';
        }
        closedir(tasks);
    }
    return count;
}

static void run(sterna_engine_t *engine, int64_t length) {
    struct select s;
    compile_select(&s, engine, length, 1);
    OK(make_tensors(&s, length, 1));
    OK(execute_select(&s));
    check_result(&s, length);
    destroy_select(&s);
}

/* Executions that follow each other at once. */
static void run_often(sterna_engine_t *engine, int64_t length) {
    struct select s;
    compile_select(&s, engine, length, 1);
    OK(make_tensors(&s, length, 1));
    for (int i = 0; i < 1000; i++) {
        OK(execute_select(&s));
    }
    check_result(&s, length);
    destroy_select(&s);
}

int main(void) {
    const int alone = threads();
    if (alone == 0) {
        puts("this system does not tell how many threads there are");
        return 0;
    }
    REQUIRE(alone == 1);
    sterna_engine_t *single, *many, *asleep;
    OK(make_engine(&single, NULL, 1));
    OK(make_engine(&many, NULL, 3));
    sterna_engine_options_t options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.threads = 2;
    options.sleep_at_once = 1;
    OK(sterna_engine_create_with_options(&asleep, &options));
    run(single, LARGE);
    run(many, SMALL);
    run_often(asleep, MIDDLE);
    REQUIRE(threads() == 1);
    size_t allowed;
    OK(sterna_engine_get_threads(many, &allowed)); /* the environment may cap it */
    run(many, LARGE);
    REQUIRE(threads() == (int)allowed);
    OK(sterna_engine_destroy(asleep));
    OK(sterna_engine_destroy(many));
    OK(sterna_engine_destroy(single));
    for (int i = 0; threads() > 1; i++) {
        const struct timespec moment = {0, 10 * 1000 * 1000};
        REQUIRE(i < 1000);
        nanosleep(&moment, NULL);
    }
    return 0;
}
