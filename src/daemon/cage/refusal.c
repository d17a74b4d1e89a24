#include "daemon/cage/refusal.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <ucontext.h>

#include "daemon/cage/calls.h"

#define NUMBERS 1024

static atomic_bool told[NUMBERS];
static struct gb_log refusal_log;

void gb_refusal_tell(const struct gb_log *log, unsigned number, const char *outcome) {
    unsigned at = number < NUMBERS ? number : NUMBERS - 1;

    if (!atomic_exchange(&told[at], true))
        gb_log(log != NULL ? log : &refusal_log, GB_LOG_WARNING, "seccomp", "the system call %s (%u) is on no list: %s",
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
    gb_refusal_tell(NULL, (unsigned)info->si_syscall, "it failed with EPERM");
    set_result(context, -EPERM);
    errno = saved;
}

int gb_refusal_prepare(const struct gb_log *log, struct gb_error *err) {
    struct sigaction action = {.sa_sigaction = refuse, .sa_flags = SA_SIGINFO | SA_NODEFER};

    refusal_log = *log;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGSYS, &action, NULL) != 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "sigaction", errno);
    return 0;
}
