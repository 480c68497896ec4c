/** Loaded before a program: its wall clock is wrong by so many milliseconds as `MILLRACE_TEST_CLOCK_MS` says. */
const offMs = Number(process.env['MILLRACE_TEST_CLOCK_MS'] ?? 0)
const RealDate = Date

globalThis.Date = class extends RealDate {
  constructor(...args: unknown[]) {
    if (args.length === 0) super(RealDate.now() + offMs)
    else super(...(args as [number]))
  }

  static override now(): number {
    return RealDate.now() + offMs
  }
} as DateConstructor
