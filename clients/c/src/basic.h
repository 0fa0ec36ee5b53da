/* Basic credentials as a header, for the library and for the programs beside it. */
#ifndef NARAD_BASIC_H
#define NARAD_BASIC_H

#include "storage/base/compiler.h"

/* "Basic dXNlcjpwYXNz", for basic_free. */
char *basic_new(const char *username, const char *password) ND_CHECKED;
/* Overwrites it first. NULL passes. */
void basic_free(char *header);

#endif
