// SPDX-License-Identifier: MPL-2.0
/* What cmocka needs in front of it. */
#ifndef HOLDFAST_TESTS_UNIT_H
#define HOLDFAST_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
