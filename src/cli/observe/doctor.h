/* doctor: what the tests use. */
#ifndef GB_CLI_DOCTOR_H
#define GB_CLI_DOCTOR_H

#include "cli/cli.h"

/* Whether the host of the URL is this machine: a loopback address, or one of an interface. */
bool gb_cli_doctor_is_here(const char *url);

#endif
