/* A gate in a stream's way: a host function that stands until the gate is opened. */
#ifndef GB_BACKEND_GATE_H
#define GB_BACKEND_GATE_H

struct gb_gate;

/* Closed, with a reference for the function and one for the opener. NULL when memory is exhausted. */
struct gb_gate *gb_gate_new(void);

/* The host function; arg is the gate. Blocks until the gate is open and gives the function's reference back. */
void gb_gate_pass(void *arg);

/* Opens the gate and gives the opener's reference back. [any thread, never blocks] */
void gb_gate_open(struct gb_gate *gate);

/* Frees a gate whose function was not queued. */
void gb_gate_free(struct gb_gate *gate);

#endif
