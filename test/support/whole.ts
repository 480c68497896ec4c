/** `MILLRACE_WHOLE=1` runs every case of what is otherwise sampled, and at full depth: many minutes instead of a few. */
export const IS_WHOLE = Boolean(process.env['MILLRACE_WHOLE'])
