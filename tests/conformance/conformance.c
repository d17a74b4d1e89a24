/* Runs the conformance suite against the backends given as arguments, or in GB_CONFORMANCE_BACKENDS separated by
 * spaces, or against all that this machine has. The output names each backend that is left out, with the reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conf.h"

/* Whether CUDA works, tested in a child process: CUDA does not survive the fork of the tests. */
static bool cuda_answers(char *why, size_t size) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_backend *be = NULL;
    char note[GB_BACKEND_NOTE_SIZE];
    int status = 0;
    int fds[2];
    ssize_t n;
    pid_t pid;

    if (pipe(fds) < 0)
        return false;
    pid = fork();
    if (pid == 0) {
        if (gb_backend_open("cuda", &be, note, &err) == 0)
            _exit(0);
        if (write(fds[1], err.detail, strlen(err.detail)) < 0)
            _exit(2);
        _exit(1);
    }
    close(fds[1]);
    n = read(fds[0], why, size - 1);
    why[n > 0 ? n : 0] = '\0';
    close(fds[0]);
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int run(const char *spec) {
    char name[128];
    Suite *suite;

    snprintf(name, sizeof(name), "conformance of %s", spec);
    suite = suite_create(name);
    conf.spec = spec;
    conf_add_device(suite);
    conf_add_order(suite);
    conf_add_watch(suite);
    conf_add_memory(suite);
    conf_add_pool(suite);
    conf_add_reuse(suite);
    conf_add_kind(suite);
    conf_add_export(suite);
    conf_add_adopt(suite);
    conf_add_move(suite);
    conf_add_box(suite);
    conf_add_peer(suite);
    conf_add_threads(suite);
    return gb_test_run(suite);
}

static int run_words(char *words) {
    char *state = NULL;
    char *spec;
    int failed = 0;

    for (spec = strtok_r(words, " ", &state); spec; spec = strtok_r(NULL, " ", &state))
        failed |= run(spec);
    return failed;
}

int main(int argc, char **argv) {
    char everywhere[] = "host host:devices=2,legacy=fake,ipc=fake,free=waits host:discrete "
                        "host:discrete,devices=2,peers=no,managed=attach fault::host";
    const char *wanted = getenv("GB_CONFORMANCE_BACKENDS");
    char why[256];
    char *copy;
    int failed = 0;
    int i = gb_backend_probe(argc, argv);

    if (i >= 0)
        return i;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (i = 1; i < argc; i++)
        failed |= run(argv[i]);
    if (argc > 1)
        return failed;
    if (wanted && wanted[0] != '\0') {
        copy = strdup(wanted);
        failed = copy ? run_words(copy) : EXIT_FAILURE;
        free(copy);
        return failed;
    }
    failed = run_words(everywhere);
    if (cuda_answers(why, sizeof(why)))
        failed |= run("cuda");
    else
        printf("cuda: skipped, %s\n", why[0] != '\0' ? why : "the probe ended without an answer");
    return failed;
}
