#include "daemon/cage/supervisor.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"
#include "daemon/cage/refusal.h"

static struct {
    struct gb_log log;
    struct seccomp_notif *ask; /* as large as the kernel's, which may be newer than the headers */
    struct seccomp_notif_resp *answer;
    size_t ask_size;
    size_t answer_size;
    int fd;
} supervisor;

static void answer(void) {
    memset(supervisor.answer, 0, supervisor.answer_size);
    supervisor.answer->id = supervisor.ask->id;
    supervisor.answer->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    (void)ioctl(supervisor.fd, SECCOMP_IOCTL_NOTIF_SEND, supervisor.answer); /* a thread that ended needs none */
}

static void *serve(void *arg) {
    for (;;) {
        memset(supervisor.ask, 0, supervisor.ask_size);
        if (ioctl(supervisor.fd, SECCOMP_IOCTL_NOTIF_RECV, supervisor.ask) == 0) {
            gb_refusal_tell(&supervisor.log, (unsigned)supervisor.ask->data.nr, "it was made all the same");
            answer();
        } else if (errno != EINTR && errno != ENOENT) {
            return arg;
        }
    }
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

int gb_supervisor_prepare(const struct gb_log *log, struct gb_error *err) {
    struct seccomp_notif_sizes sizes = {0};

    (void)syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes);
    supervisor.ask_size = larger(sizes.seccomp_notif, sizeof *supervisor.ask);
    supervisor.answer_size = larger(sizes.seccomp_notif_resp, sizeof *supervisor.answer);
    supervisor.ask = calloc(1, supervisor.ask_size);
    supervisor.answer = calloc(1, supervisor.answer_size);
    supervisor.log = *log;
    if (supervisor.ask == NULL || supervisor.answer == NULL)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    return 0;
}

int gb_supervisor_start(int fd, struct gb_error *err) {
    pthread_t thread;

    supervisor.fd = fd;
    if (gb_thread_start(&thread, "gb-cage", serve, NULL, err) != 0)
        return -1;
    pthread_detach(thread);
    return 0;
}
