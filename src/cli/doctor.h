/* What doctor finds: a list of checks, each good, or with its remedy, or without meaning here. */
#ifndef GB_CLI_DOCTOR_H
#define GB_CLI_DOCTOR_H

#include "cli/cli.h"

/* Of a token that is in force, and may not see the daemon as a whole. */
#define GB_CLI_SCOPE_REMEDY                                                                                            \
    "these checks need a token of the scope read that is of no one session and has no prefix (\"gpubufd token list\" " \
    "shows what each may)"

struct gb_cli_doctor {
    struct gb_cli *cli;
    json_t *checks;
    bool bad;     /* some check said no */
    bool reached; /* the daemon answers */
    bool here;    /* the daemon is on this machine */
    bool gpu;     /* there are signs of a GPU of NVIDIA on this machine */
    bool named;   /* the URL was given, by an option or the environment */
    bool socket_named;
    bool looked; /* peer has been filled */
    struct gpubuf_peer peer;
    json_t *root;     /* GET /v1, or NULL */
    char remedy[256]; /* of the last error */
};

/* Adds a check. detail: what is; remedy: what to do about it, used when not good. */
void gb_cli_doctor_add(struct gb_cli_doctor *doctor, const char *check, bool good, const char *remedy,
                       const char *detail, ...) __attribute__((format(printf, 5, 6)));

/* Adds a check that does not apply here, with the reason: it is no failure. */
void gb_cli_doctor_skip(struct gb_cli_doctor *doctor, const char *check, const char *detail, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether the host of the URL is this machine: a loopback address, or one of an interface. */
bool gb_cli_doctor_is_here(const char *url);
/* What to do about cli->error; otherwise, where nothing is known. Valid until the next call. */
const char *gb_cli_doctor_remedy(struct gb_cli_doctor *doctor, const char *otherwise);
/* TLS, an answer, access. */
void gb_cli_doctor_reach(struct gb_cli_doctor *doctor);
/* Whether there is a GPU of NVIDIA, with a driver or without: what its driver shows, or what is on the PCI bus. */
bool gb_cli_doctor_has_gpu(void);
/* The GPU's driver on this machine: files, library, devices. */
void gb_cli_doctor_driver(struct gb_cli_doctor *doctor);
/* The road to shared memory: UNIX socket, permission, a mapping. */
void gb_cli_doctor_sharing(struct gb_cli_doctor *doctor);

#endif
