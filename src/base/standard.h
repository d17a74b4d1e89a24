/* The standard descriptors of a program. */
#ifndef GB_BASE_STANDARD_H
#define GB_BASE_STANDARD_H

/* Before anything is opened: takes the numbers of those that are closed, so that no file gets them. Reading and writing
 * them fails as before. */
void gb_standard_hold(void);

#endif
