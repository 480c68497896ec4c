export type { StandardSchemaV1 } from '@standard-schema/spec'
