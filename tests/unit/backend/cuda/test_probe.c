/* Handles that the driver might not survive are opened by another process first. This program is that process, too, and
 * does what the handle's first byte says. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backend/cuda/internal.h"
#include "gb_test.h"

enum { FOR_CUDA, DIES, LEAVES, TAKES_IT, ENDS_PROBER };

/* As the probe answers: a number of CUDA's, and a call. */
struct answer {
    int rc;
    char call[48];
};

static int probe(int argc, char **argv) {
    const struct rlimit no_core = {0, 0};
    struct answer taken = {.call = "all"};

    switch (argc == 3 ? strtol((char[]){argv[2][0], argv[2][1], '\0'}, NULL, 16) : -1) {
    case FOR_CUDA:
        return gb_cuda_probe_main(argc, argv);
    case DIES:
        (void)setrlimit(RLIMIT_CORE, &no_core);
        raise(SIGSEGV);
        return 1;
    case ENDS_PROBER: /* which is its parent */
        (void)kill(getppid(), SIGKILL);
        return 0;
    case LEAVES:
        return 0;
    case TAKES_IT: /* and has the descriptor */
        return lseek(3, 0, SEEK_CUR) == 4711 && write(4, &taken, sizeof(taken)) == (ssize_t)sizeof(taken) ? 0 : 1;
    default:
        return 1;
    }
}

static int ask(int what, struct gb_error *err) {
    struct gb_import import = {.way = GB_EXPORT_POOL, .fd = memfd_create("pool", MFD_CLOEXEC), .bytes = 8};
    int r;

    import.handle[0] = (unsigned char)what;
    import.handle[1] = 0xab;
    ck_assert_int_eq(lseek(import.fd, 4711, SEEK_SET), 4711);
    r = gb_cuda_probe(&import, err);
    close(import.fd);
    return r;
}

static int open_files(void) {
    int fd = dup(1);

    close(fd);
    return fd;
}

START_TEST(what_is_survived_is_taken) {
    struct gb_error err = GB_ERROR_INIT;
    int before = open_files();

    gb_assert_ok(ask(TAKES_IT, &err), err);
    ck_assert_int_eq(open_files(), before);
}
END_TEST

START_TEST(what_is_not_survived_is_refused) {
    struct gb_error err = GB_ERROR_INIT;
    int before = open_files();

    gb_assert_fails(ask(DIES, &err), err, GB_ERR_CANNOT_ADOPT);
    gb_assert_fails(ask(LEAVES, &err), err, GB_ERR_CANNOT_ADOPT);
    ck_assert_int_eq(open_files(), before);
}
END_TEST

/* Without a GPU CUDA says so; with one the descriptor is of no pool. */
START_TEST(what_cuda_says_is_told) {
    struct gb_error err = GB_ERROR_INIT;

    ck_assert_int_eq(ask(FOR_CUDA, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_CANNOT_ADOPT);
    ck_assert_str_eq(err.native_domain, "cuda");
    ck_assert_str_ne(err.native_name, "");
    ck_assert_str_ne(err.call, "");
}
END_TEST

/* Where Landlock confines the daemon, another process starts the probes. What comes back is the same, and a prober that
 * has ended is an error of its own. */
START_TEST(a_prober_starts_probes_too) {
    struct gb_error err = GB_ERROR_INIT;
    int before;

    gb_assert_ok(gb_cuda_prober_start(&err), err);
    before = open_files();
    gb_assert_ok(ask(TAKES_IT, &err), err);
    gb_assert_fails(ask(DIES, &err), err, GB_ERR_CANNOT_ADOPT);
    gb_assert_fails(ask(LEAVES, &err), err, GB_ERR_CANNOT_ADOPT);
    gb_assert_fails(ask(FOR_CUDA, &err), err, GB_ERR_CANNOT_ADOPT);
    gb_assert_ok(ask(TAKES_IT, &err), err);
    gb_assert_fails(ask(ENDS_PROBER, &err), err, GB_ERR_SATURATED);
    gb_assert_fails(ask(TAKES_IT, &err), err, GB_ERR_SATURATED);
    ck_assert_int_eq(open_files(), before);
}
END_TEST

int main(int argc, char **argv) {
    int probed = gb_cuda_prober_main(argc, argv);
    Suite *suite;

    if (probed >= 0)
        return probed;
    if (argc > 0 && strcmp(argv[0], GB_CUDA_PROBE) == 0)
        return probe(argc, argv);
    suite = suite_create("cuda_probe");
    gb_test_add(suite, "survived", what_is_survived_is_taken, 60);
    gb_test_add(suite, "refused", what_is_not_survived_is_refused, 60);
    gb_test_add(suite, "told", what_cuda_says_is_told, 60);
    gb_test_add(suite, "prober", a_prober_starts_probes_too, 120);
    return gb_test_run(suite);
}
