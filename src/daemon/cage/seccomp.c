/* The filter of system calls: a program for the kernel by the list in calls.def, and the signal handler that reports a
 * call that it refused. */
#include "daemon/cage/seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/thread.h"
#include "daemon/cage/privileges.h"

/* --- calls by name and number ------------------------------------------------------------------------------------- */

struct call {
    unsigned number;
    unsigned sets; /* of which one is needed; 0: none is */
};

struct name {
    unsigned number;
    const char *name;
};

enum group_set {
#define GB_CALL_GROUP(group, set, why) GROUP_##group = SET_##set,
#define GB_CALL(name, group)
#define SET_ALL 0
#define SET_CUDA GB_CAGE_CUDA
#define SET_OUTWARD GB_CAGE_OUTWARD
#define SET_EITHER (GB_CAGE_CUDA | GB_CAGE_OUTWARD)
#include "daemon/cage/calls.def"
#undef GB_CALL
#undef GB_CALL_GROUP
};

static const struct call calls[] = {
#define GB_CALL_GROUP(group, set, why)
#define GB_CALL(name, group) {SYS_##name, GROUP_##group},
#include "daemon/cage/calls.def"
#undef GB_CALL
#undef GB_CALL_GROUP
};

/* Made by the build from its headers. */
static const struct name names[] = {
#define GB_CALL_NAME(name) {__NR_##name, #name},
#include "daemon/cage/names.inc"
#undef GB_CALL_NAME
};

static int ascending(const void *a, const void *b) {
    unsigned x = *(const unsigned *)a;
    unsigned y = *(const unsigned *)b;

    return (x > y) - (x < y);
}

size_t gb_calls_permitted(unsigned sets, unsigned *ret, size_t room) {
    size_t count = 0;
    size_t i;

    for (i = 0; i < sizeof(calls) / sizeof(calls[0]) && count < room; i++)
        if (calls[i].sets == 0 || (calls[i].sets & sets) != 0)
            ret[count++] = calls[i].number;
    qsort(ret, count, sizeof(*ret), ascending);
    return count;
}

const char *gb_call_name(unsigned number) {
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].number == number)
            return names[i].name;
    return "unknown";
}

/* --- the program that decides on each call ------------------------------------------------------------------------ */

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#define X32_BIT 0x40000000u
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#define ARCH 0u
#endif

#define CALLS_MAX 400
#define OTHER_NAMESPACES                                                                                               \
    (CLONE_NEWCGROUP | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUSER | CLONE_NEWUTS)

#define FILTER_MAX 1024

struct filter {
    struct sock_filter code[FILTER_MAX];
    unsigned short length;
};

enum rule_set { HOST, CUDA, BOTH, OUTWARD };

/* Permits a call if its argument number `at`, of which the mask says what counts, has the value. */
struct rule {
    unsigned call;
    unsigned at;
    uint32_t mask;
    uint32_t value;
    enum rule_set set;
};

#define ALL_BITS 0xffffffffu
#define OWN_PROCESS 0xfffffffeu /* stands for the number of this process */

/* Those of one call stand together. */
static const struct rule rules[] = {
    {SYS_clone, 0, CLONE_THREAD, CLONE_THREAD, HOST},
    {SYS_clone, 0, OTHER_NAMESPACES, 0, CUDA},
    {SYS_ioctl, 1, ALL_BITS, FIONREAD, HOST},
    {SYS_ioctl, 1, ALL_BITS, SIOCOUTQ, HOST},
    {SYS_ioctl, 1, 0, 0, CUDA},
    {SYS_prctl, 0, ALL_BITS, PR_GET_NAME, BOTH},
    {SYS_prctl, 0, ALL_BITS, PR_SET_NAME, BOTH},
    {SYS_prctl, 0, ALL_BITS, PR_SET_TIMERSLACK, BOTH},
    {SYS_socket, 0, ALL_BITS, AF_UNIX, BOTH},
    {SYS_socket, 0, ALL_BITS, AF_INET, OUTWARD},
    {SYS_socket, 0, ALL_BITS, AF_INET6, OUTWARD},
    {SYS_socket, 0, ALL_BITS, AF_NETLINK, OUTWARD}, /* the resolver asks which addresses this machine has */
    {SYS_socketpair, 0, ALL_BITS, AF_UNIX, BOTH},
    {SYS_tgkill, 0, ALL_BITS, OWN_PROCESS, BOTH}, /* abort() */
};

/* The supervisor's, who permits everything: nothing is gained by asking it of the kernel oneself. */
static const struct rule supervisor_rules[] = {
    {SYS_ioctl, 1, ALL_BITS, (uint32_t)SECCOMP_IOCTL_NOTIF_RECV, BOTH},
    {SYS_ioctl, 1, ALL_BITS, (uint32_t)SECCOMP_IOCTL_NOTIF_SEND, BOTH},
};

static void emit(struct filter *f, uint16_t code, uint8_t if_true, uint8_t if_false, uint32_t k) {
    if (f->length < FILTER_MAX)
        f->code[f->length++] = (struct sock_filter){code, if_true, if_false, k};
}

static void load(struct filter *f, size_t at) {
    emit(f, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)at);
}

/* Jumps over as many instructions if the number loaded is the one, or is not. */
static void equal(struct filter *f, uint32_t value, uint8_t if_true, uint8_t if_false) {
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, if_true, if_false, value);
}

static void give(struct filter *f, uint32_t action) {
    emit(f, BPF_RET | BPF_K, 0, 0, action);
}

static size_t low_half(unsigned argument) {
    size_t at = offsetof(struct seccomp_data, args) + argument * sizeof(uint64_t);

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    at += sizeof(uint32_t);
#endif
    return at;
}

static bool applies(const struct rule *rule, unsigned sets) {
    if (rule->set == OUTWARD)
        return (sets & GB_CAGE_OUTWARD) != 0;
    return rule->set == BOTH || (rule->set == CUDA) == ((sets & GB_CAGE_CUDA) != 0);
}

/* The argument is an int in all of these: its upper half does not count, for the kernel either. */
static void add_rule(struct filter *f, const struct rule *rule) {
    uint32_t value = rule->value == OWN_PROCESS ? (uint32_t)getpid() : rule->value;

    equal(f, rule->call, 0, rule->mask == ALL_BITS ? 4 : 5);
    load(f, low_half(rule->at));
    if (rule->mask != ALL_BITS)
        emit(f, BPF_ALU | BPF_AND | BPF_K, 0, 0, rule->mask);
    equal(f, value, 0, 1);
    give(f, SECCOMP_RET_ALLOW);
    load(f, offsetof(struct seccomp_data, nr));
}

/* From first to last, neighbours by number. */
static void add_range(struct filter *f, unsigned first, unsigned last) {
    if (first == last) {
        equal(f, first, 0, 1);
    } else {
        emit(f, BPF_JMP | BPF_JGE | BPF_K, 0, 2, first);
        emit(f, BPF_JMP | BPF_JGT | BPF_K, 1, 0, last);
    }
    give(f, SECCOMP_RET_ALLOW);
}

static void add_calls(struct filter *f, unsigned sets) {
    unsigned numbers[CALLS_MAX];
    size_t count = gb_calls_permitted(sets, numbers, CALLS_MAX);
    size_t first = 0;
    size_t i;

    for (i = 1; i <= count; i++) {
        if (i < count && numbers[i] == numbers[i - 1] + 1)
            continue;
        add_range(f, numbers[first], numbers[i - 1]);
        first = i;
    }
}

/* Permits what calls.def and the rules here permit; every other call gets the action `unknown` (SECCOMP_RET_...).
 * False: this processor is not known. */
static bool build_filter(unsigned sets, uint32_t unknown, struct filter *ret) {
    size_t i;

    *ret = (struct filter){.length = 0};
    load(ret, offsetof(struct seccomp_data, arch));
    equal(ret, ARCH, 1, 0);
    give(ret, SECCOMP_RET_KILL_PROCESS);
    load(ret, offsetof(struct seccomp_data, nr));
#ifdef X32_BIT
    emit(ret, BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
    give(ret, SECCOMP_RET_KILL_PROCESS);
#endif
    add_calls(ret, sets);
    for (i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (applies(&rules[i], sets))
            add_rule(ret, &rules[i]);
    if (unknown == SECCOMP_RET_USER_NOTIF)
        for (i = 0; i < sizeof(supervisor_rules) / sizeof(supervisor_rules[0]); i++)
            add_rule(ret, &supervisor_rules[i]);
    /* Its flags lie in memory, where a filter cannot look: the C library takes clone instead. */
    equal(ret, SYS_clone3, 0, 1);
    give(ret, SECCOMP_RET_ERRNO | ENOSYS);
    give(ret, unknown);
    return ARCH != 0 && ret->length < FILTER_MAX;
}

/* --- what a refused call comes to --------------------------------------------------------------------------------- */

#define NUMBERS 1024

static atomic_bool logged[NUMBERS];
static struct gb_log refusal_log;

/* Logs that number, once in a process. Safe on any thread. log: NULL for the one of prepare_refusal. */
static void log_refusal(const struct gb_log *log, unsigned number, const char *outcome) {
    unsigned at = number < NUMBERS ? number : NUMBERS - 1;

    if (!atomic_exchange(&logged[at], true))
        gb_log(log ? log : &refusal_log, GB_LOG_WARNING, "seccomp", "the system call %s (%u) is on no list: %s",
               gb_call_name(number), number, outcome);
}

static void set_result(ucontext_t *context, long result) {
#if defined(__x86_64__)
    context->uc_mcontext.gregs[REG_RAX] = result;
#elif defined(__aarch64__)
    context->uc_mcontext.regs[0] = (unsigned long long)result;
#else
    (void)context;
    (void)result;
#endif
}

/* The signal comes at the call itself, on its thread, so this is like a function that the caller calls; and no list
 * lacks a call that the log makes. */
static void refuse(int number, siginfo_t *info, void *context) {
    int saved = errno;

    (void)number;
    log_refusal(NULL, (unsigned)info->si_syscall, "it failed with EPERM");
    set_result(context, -EPERM);
    errno = saved;
}

/* Has SIGSYS, which the kernel raises for a refused call, make it fail with EPERM. A thread that blocks the signal ends
 * the process instead. log is copied. */
static int prepare_refusal(const struct gb_log *log, struct gb_error *err) {
    struct sigaction action = {.sa_sigaction = refuse, .sa_flags = SA_SIGINFO | SA_NODEFER};

    refusal_log = *log;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGSYS, &action, NULL) != 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "sigaction", errno);
    return 0;
}

/* --- the thread that permits and logs calls on no list ------------------------------------------------------------ */

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
            log_refusal(&supervisor.log, (unsigned)supervisor.ask->data.nr, "it was made all the same");
            answer();
        } else if (errno != EINTR && errno != ENOENT) {
            return arg;
        }
    }
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Before the filter is in force, since the kernel is asked what no list permits. log is copied. Once in a process. */
static int prepare_supervisor(const struct gb_log *log, struct gb_error *err) {
    struct seccomp_notif_sizes sizes = {0};

    (void)syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes);
    supervisor.ask_size = larger(sizes.seccomp_notif, sizeof(*supervisor.ask));
    supervisor.answer_size = larger(sizes.seccomp_notif_resp, sizeof(*supervisor.answer));
    supervisor.ask = calloc(1, supervisor.ask_size);
    supervisor.answer = calloc(1, supervisor.answer_size);
    supervisor.log = *log;
    if (!supervisor.ask || !supervisor.answer)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    return 0;
}

/* Takes fd, the filter's descriptor. The thread lives as long as the process: without it such calls would fail with
 * ENOSYS. */
static int start_supervisor(int fd, struct gb_error *err) {
    pthread_t thread;

    supervisor.fd = fd;
    if (gb_thread_start(&thread, "gb-cage", serve, NULL, err) != 0)
        return -1;
    pthread_detach(thread);
    return 0;
}

/* --- in force ----------------------------------------------------------------------------------------------------- */

/* Of Linux 5.7, later than the headers may be. */
#ifndef SECCOMP_FILTER_FLAG_TSYNC_ESRCH
#define SECCOMP_FILTER_FLAG_TSYNC_ESRCH (1UL << 4)
#endif

#define SUPERVISED (SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC_ESRCH)

const char *gb_seccomp_name(enum gb_seccomp mode) {
    static const char *const words[] = {
        [GB_SECCOMP_OFF] = "off", [GB_SECCOMP_LOG] = "log", [GB_SECCOMP_ERRNO] = "errno", [GB_SECCOMP_KILL] = "kill"};

    return words[mode];
}

/* Threads of CUDA's driver may block the signal, and would end the process: there, the kernel's log has the calls. */
static uint32_t action(enum gb_seccomp mode, unsigned sets) {
    if (mode == GB_SECCOMP_LOG)
        return SECCOMP_RET_LOG;
    if (mode == GB_SECCOMP_KILL)
        return SECCOMP_RET_KILL_PROCESS;
    return sets ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_TRAP;
}

/* For all threads. Without SPEC_ALLOW, kernels before 5.16 also switch off the speculation of stores, at a cost to
 * every thread; that is for programs that run foreign code. Returns 0, the listener's descriptor, or -1 with errno. */
static int install(unsigned sets, uint32_t unknown, unsigned long flags) {
    struct filter filter;
    struct sock_fprog program = {0, filter.code};
    long r;

    if (!build_filter(sets, unknown, &filter)) {
        errno = ENOSYS;
        return -1;
    }
    program.len = filter.length;
    flags |= SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW | SECCOMP_FILTER_FLAG_LOG;
    r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    if (r > 0 && !(flags & SECCOMP_FILTER_FLAG_NEW_LISTENER)) { /* the thread that could not have it */
        errno = ESRCH;
        return -1;
    }
    return (int)r;
}

/* 0: no kernel for it; 1: in force. */
static int install_alone(enum gb_seccomp mode, unsigned sets, const struct gb_log *log, struct gb_error *err) {
    if (mode == GB_SECCOMP_ERRNO && !sets && prepare_refusal(log, err) != 0)
        return -1;
    if (install(sets, action(mode, sets), 0) == 0)
        return 1;
    /* The kernel lacks it, or a sandbox around this process forbids it. */
    return errno == ENOSYS || errno == EINVAL || errno == EPERM
               ? 0
               : gb_error_errno(err, GB_ERR_INTERNAL, "seccomp", errno);
}

int gb_seccomp_enter(enum gb_seccomp mode, unsigned sets, const struct gb_log *log, enum gb_seccomp *ret_mode,
                     struct gb_error *err) {
    int r = 1;
    int fd = -1;

    *ret_mode = GB_SECCOMP_OFF;
    if (mode == GB_SECCOMP_OFF)
        return 0;
    if (gb_privileges_none_new(err) != 0 || (mode == GB_SECCOMP_LOG && prepare_supervisor(log, err) != 0))
        return -1;
    /* A filter around this process may have taken the one listener that there can be; then the kernel logs. */
    if (mode == GB_SECCOMP_LOG)
        fd = install(sets, SECCOMP_RET_USER_NOTIF, SUPERVISED);
    if (fd >= 0)
        r = start_supervisor(fd, err) == 0 ? 1 : -1;
    else
        r = install_alone(mode, sets, log, err);
    if (r > 0)
        *ret_mode = mode;
    return r < 0 ? -1 : 0;
}
