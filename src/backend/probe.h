/* Opening what a client gave in a process of its own first: a handle that the driver does not survive ends that process
 * and not the daemon.
 *
 * The process is the same program, started again: every program that imports calls gb_probe_main before all else. */
#ifndef GB_BACKEND_PROBE_H
#define GB_BACKEND_PROBE_H

/* -1: this process was not started as a probe, and goes on; else its exit status. */
int gb_probe_main(int argc, char **argv);

#endif
