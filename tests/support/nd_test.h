/* What cmocka needs before its header, in the one place that knows. */
#ifndef ND_TESTS_SUPPORT_ND_TEST_H
#define ND_TESTS_SUPPORT_ND_TEST_H

/* The order matters. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#endif
