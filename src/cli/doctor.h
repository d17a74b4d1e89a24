/* What doctor finds: a list of checks, each good, or with its remedy, or without meaning here. */
#ifndef GB_CLI_DOCTOR_H
#define GB_CLI_DOCTOR_H

#include "cli/cli.h"

#define GB_CLI_TOKEN_REMEDY                                                                                            \
    "give a token that is in force: --token-file FILE or GPUBUF_TOKEN (\"gpubufd token add NAME\" makes one)"

struct gb_cli_doctor {
    struct gb_cli *cli;
    json_t *checks;
    bool bad;     /* some check said no */
    bool reached; /* the daemon answers */
    bool here;    /* the daemon is on this machine */
    bool gpu;     /* there are signs of a GPU of NVIDIA on this machine */
    json_t *root; /* GET /v1, or NULL */
};

/* Adds a check. detail: what is; remedy: what to do about it, used when not good. */
void gb_cli_doctor_add(struct gb_cli_doctor *doctor, const char *check, bool good, const char *remedy,
                       const char *detail, ...) __attribute__((format(printf, 5, 6)));

/* Adds a check that does not apply here, with the reason: it is no failure. */
void gb_cli_doctor_skip(struct gb_cli_doctor *doctor, const char *check, const char *detail, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether there is a GPU of NVIDIA, with a driver or without: what its driver shows, or what is on the PCI bus. */
bool gb_cli_doctor_has_gpu(void);
/* The GPU's driver on this machine: files, library, devices. */
void gb_cli_doctor_driver(struct gb_cli_doctor *doctor);
/* The road to shared memory: UNIX socket, permission, a mapping. */
void gb_cli_doctor_sharing(struct gb_cli_doctor *doctor);

#endif
