/* What a test does in a process of its own, since no process leaves its cage. */
#ifndef GB_CAGE_TEST_H
#define GB_CAGE_TEST_H

#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gb_test.h"

/* In the process: what does not hold ends it with the number of the line, of which the test tells. */
#define HOLDS(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return __LINE__;                                                                                           \
    } while (0)

#define REFUSED(call, number) HOLDS((call) == -1 && errno == (number))

static inline int gb_in_child(int (*run)(void)) {
    int ends[2];
    int line = -1;
    int status;
    pid_t pid;

    ck_assert_int_eq(pipe(ends), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        line = run();
        _exit(write(ends[1], &line, sizeof line) == (ssize_t)sizeof line ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], &line, sizeof line) != (ssize_t)sizeof line)
        line = -1;
    close(ends[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : line;
}

#define ck_assert_child(run)                                                                                           \
    do {                                                                                                               \
        int line_ = gb_in_child(run);                                                                                  \
        ck_assert_msg(line_ == 0, line_ > 0 ? "line %d does not hold" : "the process ended by signal %d", abs(line_)); \
    } while (0)

#endif
