#include "daemon/cage/filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/cage/calls.h"

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

static void emit(struct gb_filter *f, uint16_t code, uint8_t if_true, uint8_t if_false, uint32_t k) {
    if (f->length < GB_FILTER_MAX)
        f->code[f->length++] = (struct sock_filter){code, if_true, if_false, k};
}

static void load(struct gb_filter *f, size_t at) {
    emit(f, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)at);
}

/* Jumps over as many instructions if the number loaded is the one, or is not. */
static void equal(struct gb_filter *f, uint32_t value, uint8_t if_true, uint8_t if_false) {
    emit(f, BPF_JMP | BPF_JEQ | BPF_K, if_true, if_false, value);
}

static void give(struct gb_filter *f, uint32_t action) {
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

/* The argument is an int in all of these: its upper half is not looked at, by the kernel either. */
static void add_rule(struct gb_filter *f, const struct rule *rule) {
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
static void add_range(struct gb_filter *f, unsigned first, unsigned last) {
    if (first == last) {
        equal(f, first, 0, 1);
    } else {
        emit(f, BPF_JMP | BPF_JGE | BPF_K, 0, 2, first);
        emit(f, BPF_JMP | BPF_JGT | BPF_K, 1, 0, last);
    }
    give(f, SECCOMP_RET_ALLOW);
}

static void add_calls(struct gb_filter *f, unsigned sets) {
    unsigned calls[CALLS_MAX];
    size_t count = gb_calls_permitted(sets, calls, CALLS_MAX);
    size_t first = 0;
    size_t i;

    for (i = 1; i <= count; i++) {
        if (i < count && calls[i] == calls[i - 1] + 1)
            continue;
        add_range(f, calls[first], calls[i - 1]);
        first = i;
    }
}

bool gb_filter_build(unsigned sets, uint32_t unknown, struct gb_filter *ret) {
    size_t i;

    *ret = (struct gb_filter){.length = 0};
    load(ret, offsetof(struct seccomp_data, arch));
    equal(ret, ARCH, 1, 0);
    give(ret, SECCOMP_RET_KILL_PROCESS);
    load(ret, offsetof(struct seccomp_data, nr));
#ifdef X32_BIT
    emit(ret, BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_BIT);
    give(ret, SECCOMP_RET_KILL_PROCESS);
#endif
    add_calls(ret, sets);
    for (i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (applies(&rules[i], sets))
            add_rule(ret, &rules[i]);
    if (unknown == SECCOMP_RET_USER_NOTIF)
        for (i = 0; i < sizeof supervisor_rules / sizeof supervisor_rules[0]; i++)
            add_rule(ret, &supervisor_rules[i]);
    /* Its flags lie in memory, where a filter cannot look: the C library takes clone instead. */
    equal(ret, SYS_clone3, 0, 1);
    give(ret, SECCOMP_RET_ERRNO | ENOSYS);
    give(ret, unknown);
    return ARCH != 0 && ret->length < GB_FILTER_MAX;
}
