/* Whether this driver survives a pool's handle: a process of its own opens it. Importers of one allocation of a pool
 * die above a size that the handle alone knows, and a client may have written the handle itself. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/internal.h"
#include "base/clock.h"
#include "base/encoding.h"

#define PROBE_S 20
#define POOL_FD 3
#define ANSWER_FD 4

/* --- the probe's process ------------------------------------------------------------------------------------------ */

static cudaError_t try_import(int device, struct cudaMemPoolPtrExportData *data, struct gb_cuda_probe_answer *answer) {
    cudaMemPool_t pool;
    cudaError_t rc;
    void *at = NULL;

    snprintf(answer->call, sizeof(answer->call), "cudaSetDevice");
    rc = cudaSetDevice(device);
    if (rc != cudaSuccess)
        return rc;
    snprintf(answer->call, sizeof(answer->call), "cudaMemPoolImportFromShareableHandle");
    rc =
        cudaMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)POOL_FD, cudaMemHandleTypePosixFileDescriptor, 0);
    if (rc != cudaSuccess)
        return rc;
    snprintf(answer->call, sizeof(answer->call), "cudaMemPoolImportPointer");
    return cudaMemPoolImportPointer(&at, pool, data);
}

/* The end of the process gives everything back. */
int gb_cuda_probe_main(int argc, char **argv) {
    const struct rlimit no_core = {0, 0};
    struct cudaMemPoolPtrExportData data;
    struct gb_cuda_probe_answer answer = {0};
    unsigned char bytes[GB_EXPORT_HANDLE_BYTES];

    if (argc == 0 || strcmp(argv[0], GB_CUDA_PROBE) != 0)
        return -1;
    if (argc != 3 || !gb_hex_read(argv[2], bytes, sizeof(bytes)))
        return EXIT_FAILURE;
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)signal(SIGALRM, SIG_DFL);
    (void)alarm(PROBE_S);
    memcpy(&data, bytes, sizeof(data));
    answer.rc = (int)try_import(atoi(argv[1]), &data, &answer);
    return write(ANSWER_FD, &answer, sizeof(answer)) == (ssize_t)sizeof(answer) ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* --- the daemon's side -------------------------------------------------------------------------------------------- */

/* Descriptors above those that the probe is to have them as. */
static int spawn(char *const argv[], int pool_fd, int answer_fd, pid_t *ret) {
    int high[2] = {fcntl(pool_fd, F_DUPFD_CLOEXEC, 16), fcntl(answer_fd, F_DUPFD_CLOEXEC, 16)};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    int r = errno;

    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawn_file_actions_adddup2(&actions, high[0], POOL_FD);
    posix_spawn_file_actions_adddup2(&actions, high[1], ANSWER_FD);
    if (high[0] >= 0 && high[1] >= 0)
        r = posix_spawn(ret, "/proc/self/exe", &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    if (high[0] >= 0)
        close(high[0]);
    if (high[1] >= 0)
        close(high[1]);
    return r;
}

/* True when the probe has answered; it is gone afterwards. */
static bool hear(int fd, pid_t pid, struct gb_cuda_probe_answer *ret, int *ret_status) {
    uint64_t end_ns = gb_clock_ns() + PROBE_S * GB_NS_PER_S;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t now_ns;
    bool heard = false;
    int n = 0;

    while (n == 0 && (now_ns = gb_clock_ns()) < end_ns) {
        n = poll(&p, 1, (int)((end_ns - now_ns) / GB_NS_PER_MS) + 1);
        n = n < 0 && errno == EINTR ? 0 : n;
    }
    if (n > 0)
        heard = read(fd, ret, sizeof(*ret)) == (ssize_t)sizeof(*ret);
    if (!heard)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, ret_status, 0) < 0 && errno == EINTR)
        continue;
    ret->call[sizeof(ret->call) - 1] = '\0';
    return heard;
}

void gb_cuda_probe_run(const struct gb_cuda_probe_request *what, int pool_fd, struct gb_cuda_probe_result *ret) {
    char name[] = GB_CUDA_PROBE;
    char device[16];
    char hex[GB_HEX_SIZE(GB_EXPORT_HANDLE_BYTES)];
    char *argv[] = {name, device, hex, NULL};
    int ends[2];
    pid_t pid = 0;

    *ret = (struct gb_cuda_probe_result){.heard = false};
    snprintf(device, sizeof(device), "%d", what->device);
    gb_hex(what->handle, GB_EXPORT_HANDLE_BYTES, hex);
    if (pipe2(ends, O_CLOEXEC) < 0) {
        ret->error = errno;
        return;
    }
    ret->error = spawn(argv, pool_fd, ends[1], &pid);
    close(ends[1]);
    if (ret->error == 0)
        ret->heard = hear(ends[0], pid, &ret->answer, &ret->status);
    close(ends[0]);
}

int gb_cuda_probe(const struct gb_import *what, struct gb_error *err) {
    struct gb_cuda_probe_request request = {.device = what->device};
    struct gb_cuda_probe_result result;
    const struct gb_cuda_probe_answer *answer = &result.answer;
    int status;

    memcpy(request.handle, what->handle, sizeof(request.handle));
    if (!gb_cuda_prober_ask(&request, what->fd, &result))
        gb_cuda_probe_run(&request, what->fd, &result);
    if (result.error != 0)
        return gb_error_errno(err, GB_ERR_SATURATED, "the start of a process that opens the pool", result.error);
    status = result.status;
    if (!result.heard)
        return gb_error_set(err, GB_ERR_CANNOT_ADOPT,
                            "a process that opened the pool and its pointer %s: allocations of a pool are taken up to "
                            "%llu bytes, as cudaMemPoolExportToShareableHandle and cudaMemPoolExportPointer gave them",
                            WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL ? "died of it" : "did not come back",
                            GB_EXPORT_POOL_MAX_BYTES);
    if (answer->rc == cudaSuccess)
        return 0;
    gb_error_native(err, "cuda", answer->rc, cudaGetErrorName((cudaError_t)answer->rc), answer->call);
    return gb_error_set(err, GB_ERR_CANNOT_ADOPT,
                        "CUDA does not take it for a pool and a pointer into it (%s: %s): give what "
                        "cudaMemPoolExportToShareableHandle and cudaMemPoolExportPointer gave, in another process and "
                        "while the memory lives",
                        answer->call, cudaGetErrorString((cudaError_t)answer->rc));
}
